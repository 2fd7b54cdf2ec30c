"""Losses of torch, as modules or functions, that are built-in losses here."""

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from offbeat.errors import OffbeatError

_NAMES: tuple[tuple[object, str], ...] = (
    (cross_entropy, "cross_entropy"),
    (nn.CrossEntropyLoss, "cross_entropy"),
    (mse_loss, "mse"),
    (nn.MSELoss, "mse"),
    (binary_cross_entropy_with_logits, "bce"),
    (nn.BCEWithLogitsLoss, "bce"),
)


def name_of_loss(loss: Callable[..., Any]) -> str | None:
    """Return the name of the same built-in loss, or None.

    A module's weights do not count. Raises ``OffbeatError`` for a module that does not return a mean, or for a class in
    place of a module.
    """
    if isinstance(loss, type):
        raise OffbeatError(f"loss = {loss.__name__}: is a class: pass a module, {loss.__name__}()")
    if getattr(loss, "reduction", "mean") != "mean":
        raise OffbeatError(f"loss = {type(loss).__name__}: must return the mean: leave reduction out")
    key = type(loss) if isinstance(loss, nn.Module) else loss
    return next((name for known, name in _NAMES if known is key), None)
