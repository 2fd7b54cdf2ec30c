"""The values of sums of whole numbers."""

import torch
from torch import Tensor

_PIECE = 1 << 16  # numbers at a time


def values(numbers: Tensor, value: float) -> Tensor:
    """Return ``value · numbers``, float32 ``(d,)``, through float64.

    The products in float64 are made a piece at a time: all of them would be new memory, which takes longer to get than
    to fill.
    """
    products = torch.empty(len(numbers), device=numbers.device)
    for part, piece in zip(products.split(_PIECE), numbers.split(_PIECE), strict=True):
        part.copy_(piece.double().mul_(value))
    return products
