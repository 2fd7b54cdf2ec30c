"""Properties of a loss: its name here, its mean, the targets that it ignores."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

from offbeat_core.errors import OffbeatError
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss, nll_loss

Function = Callable[..., Any]

_NAMES: tuple[tuple[object, str], ...] = (
    (cross_entropy, "cross_entropy"),
    (nn.CrossEntropyLoss, "cross_entropy"),
    (nll_loss, "nll_loss"),
    (nn.NLLLoss, "nll_loss"),
    (mse_loss, "mse"),
    (nn.MSELoss, "mse"),
    (binary_cross_entropy_with_logits, "bce"),
    (nn.BCEWithLogitsLoss, "bce"),
)
_MEANS = ("mean", "batchmean")
IGNORED = -100
"""The class number of ignored targets, by torch's default."""


def check_loss(key: str, loss: Function) -> None:
    """Raise ``OffbeatError`` unless a loss is one that clients can minimise.

    A module must return a mean and must have no parameters of its own to train.
    """
    if isinstance(loss, type):
        raise OffbeatError(f"{key} = {loss.__name__}: is a class: pass a module, {loss.__name__}()")
    if _setting(loss, "reduction", "mean") not in _MEANS:
        raise OffbeatError(f"{key} = {_title(loss)}: must return the mean: leave reduction out")
    if isinstance(loss, nn.Module):
        trained = next((name for name, parameter in loss.named_parameters() if parameter.requires_grad), None)
        if trained is not None:
            raise OffbeatError(
                f"{key} = {_title(loss)}: its parameter {trained} would not be trained: move it into the model, which "
                'can return the loss itself (loss = "model")'
            )


def name_of_loss(loss: Function) -> str | None:
    """Return the name of the same built-in loss, or ``nll_loss``, or None.

    A module's or a ``partial``'s weights and other settings do not count.
    """
    if isinstance(loss, partial):
        return name_of_loss(cast("partial[Any]", loss).func)
    key = type(loss) if isinstance(loss, nn.Module) else loss
    return next((name for known, name in _NAMES if known is key), None)


def ignored_target(loss: Function) -> int:
    """Return the class number that marks targets which a cross-entropy ignores."""
    return _setting(loss, "ignore_index", IGNORED)


def weight_of(loss: Function) -> Any:
    """Return the weights of classes; None if there are none."""
    return _setting(loss, "weight", None)


def _setting(loss: Function, name: str, default: Any) -> Any:
    """Return a setting of a module or a ``partial``."""
    if isinstance(loss, partial):
        made = cast("partial[Any]", loss)
        return made.keywords.get(name, _setting(made.func, name, default))
    return getattr(loss, name, default)


def _title(loss: Function) -> str:
    if isinstance(loss, partial):
        return _title(cast("partial[Any]", loss).func)
    return getattr(loss, "__name__", type(loss).__name__)
