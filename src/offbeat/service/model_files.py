"""Versions of the model as files that clients download."""

import json
import struct
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

_PREFIX = struct.Struct("<Q")

Layout = Sequence[tuple[str, Sequence[int]]]
"""The model's trainable parameters by name, each with its shape, in the order in which they make up the vector."""


class ModelFiles:
    """A folder of safetensors files, one a version.

    What is in a file can be made again from the store's log, so it need not be on disk at once.

    Args:
        folder: Where they are.
        layout: What the vector is made of.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.length = sum(_size(shape) for _, shape in layout)
        self._folder = folder
        self._layout = layout

    def path(self, version: int) -> Path:
        """Return where a version is, or would be."""
        return self._folder / f"{version}.safetensors"

    def versions(self) -> set[int]:
        """Return the versions that are there."""
        return set(numbers_of(self._folder))

    def write(self, version: int, vector: Tensor) -> None:
        """Write a version ``(d,)`` unless it is there.

        Raises:
            OSError: The disk is full.
        """
        if self.path(version).exists():
            return
        partial = self._folder / f".{version}.partial"
        try:
            with partial.open("wb") as file:
                file.write(self._header(version))
                file.write(vector.detach().contiguous().view(torch.uint8).numpy().data)
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        partial.replace(self.path(version))

    def read(self, version: int) -> Tensor:
        """Return a version, float32 ``(d,)``, mapped and not copied."""
        path = self.path(version)
        start = path.stat().st_size - 4 * self.length
        return torch.from_numpy(np.require(np.memmap(path, "<f4", "c", start, (self.length,)), requirements=["E"]))

    def keep(self, versions: Collection[int]) -> None:
        """Delete all versions but these."""
        for version in self.versions() - set(versions):
            self.path(version).unlink()

    def _header(self, version: int) -> bytes:
        tensors: dict[str, object] = {
            "__metadata__": {"version": str(version), "layout": json.dumps([[n, list(s)] for n, s in self._layout])}
        }
        begin = 0
        for name, shape in self._layout:
            end = begin + 4 * _size(shape)
            tensors[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [begin, end]}
            begin = end
        header = json.dumps(tensors)
        header += " " * (-len(header.encode()) % 8)  # so that the entries are aligned for whoever maps the file
        return _PREFIX.pack(len(header.encode())) + header.encode()


def numbers_of(folder: Path) -> list[int]:
    """Return the numbers by which the safetensors files in a folder are called; others are none of ours."""
    return [int(path.stem) for path in folder.glob("*.safetensors") if path.stem.isdecimal()]


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
