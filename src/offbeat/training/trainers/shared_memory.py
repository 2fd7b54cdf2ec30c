"""What several processes share: tensors in common memory, and in one of these the user's model and loss."""

import io
import mmap
import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import cloudpickle
import torch
from torch import Tensor, nn

from offbeat.errors import OffbeatError
from offbeat.training.trainers.hooks import parameter_with_hook
from offbeat.user_code_errors import said

_ALIGNMENT = 64  # bytes, as torch has it for its own tensors
_STANDARD_LIBRARY = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib")]
_INSTALLED = {"site-packages", "dist-packages"}  # folders, wherever they are


class Place(NamedTuple):
    """Where in the memory a tensor is.

    Attributes:
        dtype: Its type.
        shape: Its shape.
        offset: Its first byte.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int


class SharedMemory:
    """Tensors by name, in a file without a name that each process maps.

    The memory is free again when the last process that has it is gone, however it ended.

    Args:
        fd: The file's descriptor, as inherited or from ``share``; ``close`` closes it.
        places: Where the tensors are, by name.

    Attributes:
        fd: As above; a child process that inherits it can map the same memory.
        places: As above.
    """

    def __init__(self, fd: int, places: Mapping[str, Place]) -> None:
        self.fd = fd
        self.places = dict(places)
        # Unmapped when the last tensor in it is gone.
        self._bytes = torch.frombuffer(mmap.mmap(fd, 0), dtype=torch.uint8)

    def __getitem__(self, name: str) -> Tensor:
        """Return the tensor of that name: the memory itself, not a copy."""
        dtype, shape, offset = self.places[name]
        return self._bytes[offset : offset + dtype.itemsize * prod(shape)].view(dtype).view(shape)

    def close(self) -> None:
        """Close the file; tensors that were taken before stay valid."""
        os.close(self.fd)


def share(tensors: Mapping[str, Tensor]) -> SharedMemory:
    """Return memory with copies of these tensors.

    Args:
        tensors: By name; for one on the device ``meta`` there is only room, which costs no memory until it is used.

    Raises:
        OSError: There is not enough memory.
    """
    places: dict[str, Place] = {}
    size = 0
    for name, tensor in tensors.items():
        places[name] = Place(tensor.dtype, tuple(tensor.shape), size)
        size += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    fd = _unnamed_file()
    try:
        os.ftruncate(fd, size)
        memory = SharedMemory(fd, places)
    except OSError:
        os.close(fd)
        raise
    for name, tensor in tensors.items():
        if not tensor.is_meta:
            memory[name].copy_(tensor)
    return memory


class Rows:
    """A table ``(rows, d)`` in shared memory for vectors that several jobs have in common.

    A vector is copied in once for as long as it stays; it is known by its identity.

    Args:
        table: The table.
    """

    def __init__(self, table: Tensor) -> None:
        self._table = table
        self._vectors: list[Tensor | None] = [None] * len(table)
        self._users = [0] * len(table)

    def take(self, vector: Tensor) -> int:
        """Return the row where a vector ``(d,)`` is, until as many have released it as have taken it.

        Raises:
            ValueError: All rows are taken for other vectors.
        """
        row = next((row for row, held in enumerate(self._vectors) if held is vector), None)
        if row is None:
            row = self._users.index(0)
            self._table[row] = vector
            self._vectors[row] = vector
        self._users[row] += 1
        return row

    def release(self, row: int) -> None:
        """Note that one of those who have taken a row no longer needs it."""
        self._users[row] -= 1


def _unnamed_file() -> int:
    if hasattr(os, "memfd_create"):  # Linux; in containers /dev/shm and /tmp are often small
        return os.memfd_create("offbeat")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def packed(module: nn.Module, loss: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Return a module and a loss in a form that another process can make them from, uint8 ``(n,)``.

    What comes from the user's own files goes along as it is now, so the other process does not run these files again.

    Raises:
        OffbeatError: They cannot be sent.
    """
    hooked = parameter_with_hook(module)
    if hooked is not None:  # pickle leaves the hook out without an error
        raise OffbeatError(
            f"trainer = 'processes': the model's parameter {hooked} has a hook, which cannot be sent to another "
            "process: take 'loop'"
        )
    buffer = io.BytesIO()
    try:
        with _own_modules_by_value():
            # Unlike pickle alone, this writes the memory that parameters share only once.
            torch.save((module, loss), buffer, pickle_module=cloudpickle)
    except Exception as error:  # whatever the user's own code makes of it
        raise _cannot_be_sent(error) from error
    return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)


def unpacked(code: Tensor) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor]]:
    """Return the module and the loss that were packed.

    Raises:
        OffbeatError: They cannot be made in this process.
    """
    try:
        return torch.load(io.BytesIO(code.numpy().tobytes()), weights_only=False)
    except Exception as error:
        raise _cannot_be_sent(error) from error


def _cannot_be_sent(error: Exception) -> OffbeatError:
    return OffbeatError(
        f"trainer = 'processes': the model or the loss cannot be sent to another process ({said(error)}): take 'loop'"
    )


@contextmanager
def _own_modules_by_value() -> Generator[None]:
    own = {name: module for name, module in list(sys.modules.items()) if _is_own(name, module)}
    for module in own.values():
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in own.values():
            cloudpickle.unregister_pickle_by_value(module)


def _is_own(name: str, module: Any) -> bool:
    """Return whether an imported module is the user's own, neither installed nor of Python itself."""
    # Not all that is in sys.modules is a module, and some import much as soon as they are asked for an attribute.
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    # One may also be there under a second name; or be registered already, by the user.
    if file is None or module.__name__ != name or name in cloudpickle.list_registry_pickle_by_value():
        return False
    path = Path(file)
    return not (
        name.split(".")[0] == "offbeat"
        or not _INSTALLED.isdisjoint(path.parts)
        or any(path.is_relative_to(folder) for folder in _STANDARD_LIBRARY)
    )
