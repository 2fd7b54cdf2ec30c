"""The user's model and loss as bytes that another process can load."""

import io
import sys
import sysconfig
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.user_code_errors import error_line
from torch import Tensor, nn

from offbeat.training.trainers.hooks import parameter_with_hook

_STANDARD_LIBRARY = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")]
_INSTALLED = {"site-packages", "dist-packages"}  # names of folders anywhere


def pack_code(module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor], trainer: str = "processes") -> Tensor:
    """Return a module and a loss as bytes, uint8 ``(n,)``.

    Code from the user's own files is included, so the other process does not run these files again. Raises
    ``OffbeatError``, which names the trainer, if they cannot be sent.
    """
    refuse_parameter_hooks(module, trainer)
    buffer = io.BytesIO()
    try:
        with _users_modules_by_value():
            # Unlike plain pickle, this writes memory that parameters share only once.
            torch.save((module, loss), buffer, pickle_module=cloudpickle)
    except Exception as error:  # pickling a user's code can raise any type
        raise _cannot_be_sent(error, trainer) from error
    return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)


def refuse_parameter_hooks(module: nn.Module, trainer: str) -> None:
    """Raise ``OffbeatError`` for a hook on a parameter.

    Copies and pickles lose it without an error.
    """
    hooked = parameter_with_hook(module)
    if hooked is not None:
        raise OffbeatError(
            f"trainer = {trainer!r}: the model's parameter {hooked} has a hook, which cannot be sent to another "
            "process: use 'loop'"
        )


def unpack_code(code: Tensor, trainer: str = "processes") -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]:
    """Return the packed module and loss.

    Raises ``OffbeatError`` if they cannot be loaded in this process.
    """
    try:
        return torch.load(io.BytesIO(code.numpy().tobytes()), weights_only=False)
    except Exception as error:
        raise _cannot_be_sent(error, trainer) from error


def _cannot_be_sent(error: Exception, trainer: str) -> OffbeatError:
    return OffbeatError(
        f"trainer = {trainer!r}: the model or the loss cannot be sent to another process ({error_line(error)}): "
        "use 'loop'"
    )


@contextmanager
def _users_modules_by_value() -> Generator[None]:
    modules = [module for name, module in list(sys.modules.items()) if _is_users(name, module)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _is_users(name: str, module: Any) -> bool:
    """Return whether a module is a user's file, neither installed nor part of Python."""
    # sys.modules also holds other objects, and modules that import much when an attribute is read.
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    # Skip second names of a module, and modules that the user has registered.
    if file is None or module.__name__ != name or name in cloudpickle.list_registry_pickle_by_value():
        return False
    path = Path(file)
    return not (
        name.split(".")[0] == "offbeat"
        or not _INSTALLED.isdisjoint(path.parts)
        or any(path.is_relative_to(folder) for folder in _STANDARD_LIBRARY)
    )
