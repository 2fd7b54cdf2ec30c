"""Tensors in memory that several processes share."""

import mmap
import os
import tempfile
from collections import OrderedDict
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

_ALIGNMENT = 64  # bytes, like torch's own tensors


class TensorLocation(NamedTuple):
    """The type, the shape and the first byte of a tensor in the memory."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    offset: int


class SharedMemory:
    """Tensors by name, in an unnamed file that each process maps.

    The memory is freed when the last process that has it ends, in whatever way. A child process that inherits the
    file's descriptor can map the same memory; ``close`` closes it.
    """

    def __init__(self, fd: int, locations: Mapping[str, TensorLocation]) -> None:
        self.fd = fd
        self.locations = dict(locations)
        # Unmapped with the last tensor in it.
        self._bytes = torch.frombuffer(mmap.mmap(fd, 0), dtype=torch.uint8)

    def __getitem__(self, name: str) -> Tensor:
        """Return the tensor of that name: a view, not a copy."""
        dtype, shape, offset = self.locations[name]
        return self._bytes[offset : offset + dtype.itemsize * prod(shape)].view(dtype).view(shape)

    def close(self) -> None:
        """Close the file; existing views stay valid."""
        os.close(self.fd)


def share(tensors: Mapping[str, Tensor]) -> SharedMemory:
    """Return shared memory with copies of tensors.

    A tensor on the device ``meta`` only reserves space, which takes no memory until it is used. Raises ``OSError`` if
    there is not enough memory.
    """
    locations: dict[str, TensorLocation] = {}
    size = 0
    for name, tensor in tensors.items():
        locations[name] = TensorLocation(tensor.dtype, tuple(tensor.shape), size)
        size += -(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT
    fd = _open_unnamed_file()
    try:
        os.ftruncate(fd, size)
        memory = SharedMemory(fd, locations)
    except OSError:
        os.close(fd)
        raise
    for name, tensor in tensors.items():
        if not tensor.is_meta:
            memory[name].copy_(tensor)
    return memory


def _open_unnamed_file() -> int:
    if hasattr(os, "memfd_create"):  # Linux; in containers /dev/shm and /tmp are often small
        return os.memfd_create("offbeat")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class RowTable:
    """A table ``(rows, d)`` of vectors that several jobs share.

    Vectors are identified by object identity; each is copied into the table once for as long as its row is not reused.
    """

    def __init__(self, table: Tensor) -> None:
        self._table = table
        self._vectors: list[Tensor | None] = [None] * len(table)
        self._users = [0] * len(table)
        self._rows: dict[int, int] = {}  # by the identity of the vector
        self._free = OrderedDict.fromkeys(range(len(table)))  # rows without users, the longest free first

    def take(self, vector: Tensor) -> int:
        """Return the row of a vector ``(d,)``.

        The vector stays there until it is released as often as it was taken. Raises ``KeyError`` if all rows are in use
        for other vectors.
        """
        row = self._rows.get(id(vector))
        if row is None:
            row, _ = self._free.popitem(last=False)
            self._rows.pop(id(self._vectors[row]), None)
            self._table[row] = vector
            self._vectors[row] = vector
            self._rows[id(vector)] = row
        self._free.pop(row, None)
        self._users[row] += 1
        return row

    def release(self, row: int) -> None:
        """Release a row once."""
        self._users[row] -= 1
        if not self._users[row]:
            self._free[row] = None
