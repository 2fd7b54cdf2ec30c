"""The model from which a server's run begins, where it continues an earlier run."""

from pathlib import Path

import torch
from offbeat_core.errors import OffbeatError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from offbeat.training.flat_model import FlatModel


def read_initial_model(path: Path, model: FlatModel) -> Tensor:
    """Return the vector, float32 ``(d,)``, of an exported file or of a run.

    Raises:
        OffbeatError: The file cannot be read, or holds other parameters than ``model``.
    """
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise OffbeatError(f"cannot read service.initial_model = {path}: {reason}") from None
    vector = torch.empty_like(model.vector)
    named = model.named(vector)
    if _forms(tensors) not in (_forms(named), _forms(model.saved(vector))):
        raise OffbeatError(
            f"service.initial_model = {path} does not hold this model's parameters: take a file that "
            "offbeat server export wrote"
        )
    for name, tensor in named.items():
        tensor.copy_(tensors[name])
    return vector


def _forms(tensors: dict[str, Tensor]) -> dict[str, tuple[torch.Size, torch.dtype]]:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
