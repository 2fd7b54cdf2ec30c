"""Explanations of errors that a model raises on one device only."""

from offbeat_core.errors import OffbeatError
from offbeat_core.user_code_errors import error_line
from torch import Tensor, nn

from offbeat.training.accelerator import Accelerator


def explained(error: OffbeatError, module: nn.Module, accelerator: Accelerator) -> OffbeatError:
    """Return an error of a model's step, with advice where the device is the reason."""
    cause = error.__cause__
    message = "" if cause is None else error_line(cause)
    if "deterministic" in message:
        return OffbeatError(f"{error}: change that layer, or set deterministic = false")
    elsewhere = tensors_elsewhere(module, accelerator)
    if "same device" in message and elsewhere:
        return OffbeatError(
            f"{error}: the model's {' and '.join(elsewhere)} did not move to {accelerator.device}: "
            "register such tensors with register_buffer(name, tensor, persistent=False)"
        )
    return error


def tensors_elsewhere(module: nn.Module, accelerator: Accelerator) -> list[str]:
    """Return the names of plain attributes that are tensors on another device."""
    return [
        f"{name}.{attribute}" if name else attribute
        for name, layer in module.named_modules()
        for attribute, value in vars(layer).items()
        if isinstance(value, Tensor) and value.device.type != accelerator.device.type
    ]
