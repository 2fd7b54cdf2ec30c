"""Copies of losses and metrics, whose state ends with a visit or an evaluation."""

import copy
from functools import partial
from types import MethodType
from typing import Any, TypeVar, cast

import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.user_code_errors import error_line
from torch import Tensor, nn

T = TypeVar("T")


def has_state(function: Any) -> bool:
    """Return whether a call may change a loss or a metric.

    It may change an object with attributes or what a ``partial`` holds, not a function. The losses of torch have
    attributes that no call changes. Variables of a function's module or closure are not seen.
    """
    if isinstance(function, partial):
        made = cast("partial[Any]", function)
        return has_state(made.func) or any(_may_change(part) for part in (*made.args, *made.keywords.values()))
    if isinstance(function, MethodType):
        return not isinstance(function.__self__, type)
    is_of_torch = type(function).__module__ == "torch.nn.modules.loss"
    if is_of_torch or hasattr(function, "__code__"):
        return False
    return bool(getattr(function, "__dict__", None) or getattr(function, "__slots__", None))


def _may_change(argument: Any) -> bool:
    """Return whether a function may change an argument; tensors are settings here."""
    if callable(argument):
        return has_state(argument)
    return not (argument is None or isinstance(argument, (bool, int, float, str, Tensor)))


def fresh(function: T, *, training: bool) -> T:
    """Return a copy of a loss or a metric that may change; others unchanged.

    The copy of a module is in training or in evaluation mode. Raises ``OffbeatError`` if it cannot be copied.
    """
    if not has_state(function):
        return function
    try:
        made = copy.deepcopy(function)
    except Exception as error:  # a user's object can raise any type
        raise OffbeatError(
            f"{type(function).__name__} cannot be copied for each visit and evaluation ({error_line(error)}): make it "
            "a function, or a module that can be copied"
        ) from error
    return made.train(training) if isinstance(made, nn.Module) else made


def on_device(function: T, device: torch.device) -> T:
    """Return a loss or a metric whose tensors, such as class weights, lie on a device."""
    if isinstance(function, nn.Module):
        return copy.deepcopy(function).to(device)
    if isinstance(function, partial):
        made = cast("partial[Any]", function)
        settings = {
            key: value.to(device) if isinstance(value, Tensor) else value for key, value in made.keywords.items()
        }
        return cast("T", partial(on_device(made.func, device), *made.args, **settings))
    return function
