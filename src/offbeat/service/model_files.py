"""Versions of the model as files that clients download."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from offbeat.tensor_file import write_tensors

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
        self._layout_text = json.dumps([[name, list(shape)] for name, shape in layout])

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
                write_tensors(file, self._by_name(vector), {"version": str(version), "layout": self._layout_text})
        except OSError:
            partial.unlink(missing_ok=True)
            raise
        partial.replace(self.path(version))

    def read(self, version: int) -> Tensor:
        """Return a version, float32 ``(d,)``, mapped and not copied."""
        path = self.path(version)
        start = path.stat().st_size - 4 * self.length
        return torch.from_numpy(np.require(np.memmap(path, "<f4", "c", start, (self.length,)), requirements=["E"]))

    def _by_name(self, vector: Tensor) -> dict[str, Tensor]:
        parts = vector.split([_size(shape) for _, shape in self._layout])
        return {name: part.reshape(tuple(shape)) for part, (name, shape) in zip(parts, self._layout, strict=True)}

    def keep(self, versions: Collection[int]) -> None:
        """Delete all versions but these."""
        for version in self.versions() - set(versions):
            self.path(version).unlink()


def numbers_of(folder: Path) -> list[int]:
    """Return the numbers by which the safetensors files in a folder are called; others are none of ours."""
    return [int(path.stem) for path in folder.glob("*.safetensors") if path.stem.isdecimal()]


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
