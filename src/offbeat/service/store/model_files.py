"""Versions of the model as files that clients download."""

import json
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from offbeat.tensor_file import write_tensors
from offbeat_client.client_folder.model_file import DOWN

T = TypeVar("T")

Layout = Sequence[tuple[str, Sequence[int]]]
"""The model's trainable parameters by name, each with its shape, in the order in which they make up the vector."""


class ModelFiles:
    """A folder of safetensors files, one a version.

    A version has two lives: *pending*, under a hidden name that only the server reads, until the log's records that it
    is made of are on disk; then *published*, under its own name, for everybody. The file can be made again from these
    records, so it need not be on disk itself.

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
        """Return where a version is, or would be, once it is published."""
        return self._folder / f"{version}.safetensors"

    def pending_path(self, version: int) -> Path:
        """Return where a version is, or would be, until it is published."""
        return self._folder / f".{version}.pending"

    def versions(self) -> set[int]:
        """Return the versions that are published."""
        return set(numbers_of(self._folder))

    def write(self, version: int, vector: Tensor, down: Tensor | None = None) -> None:
        """Write a version as pending, unless it is published.

        Args:
            version: Its number.
            vector: The model, float32 ``(d,)``.
            down: What goes to clients beside it, float32 ``(d,)``; None for nothing.

        Raises:
            OSError: The disk is full.
        """
        if self.path(version).exists():
            return
        # The model comes last: that is where it is mapped.
        tensors = {**({} if down is None else {DOWN: down}), **self._by_name(vector)}
        pending = self.pending_path(version)
        try:
            with pending.open("wb") as file:
                write_tensors(file, tensors, {"version": str(version), "layout": self._layout_text})
        except OSError:
            pending.unlink(missing_ok=True)
            raise

    def publish(self, version: int) -> None:
        """Publish a version that is pending, unless it is published."""
        with suppress(FileNotFoundError):
            self.pending_path(version).replace(self.path(version))

    def read(self, version: int) -> Tensor:
        """Return a version, pending or published, float32 ``(d,)``, mapped and not copied."""
        return self._with_file(version, self._map)

    def link(self, version: int, path: Path) -> None:
        """Give a version, pending or published, another name on the same disk."""
        self._with_file(version, lambda file: os.link(file, path))

    def _with_file(self, version: int, work: Callable[[Path], T]) -> T:
        # The journal's thread may publish the version at any moment.
        with suppress(FileNotFoundError):
            return work(self.pending_path(version))
        return work(self.path(version))

    def _map(self, path: Path) -> Tensor:
        start = path.stat().st_size - 4 * self.length
        return torch.from_numpy(np.require(np.memmap(path, "<f4", "c", start, (self.length,)), requirements=["E"]))

    def _by_name(self, vector: Tensor) -> dict[str, Tensor]:
        parts = vector.split([_size(shape) for _, shape in self._layout])
        return {name: part.reshape(tuple(shape)) for part, (name, shape) in zip(parts, self._layout, strict=True)}

    def keep(self, versions: Collection[int]) -> None:
        """Delete all published versions but these."""
        for version in self.versions() - set(versions):
            self.path(version).unlink()

    def discard_pending(self) -> None:
        """Delete the versions that an earlier server had not published."""
        for path in [*self._folder.glob(".*.pending"), *self._folder.glob(".*.partial")]:
            path.unlink()


def numbers_of(folder: Path) -> list[int]:
    """Return the numbers by which the safetensors files in a folder are called; others are none of ours."""
    return [int(path.stem) for path in folder.glob("*.safetensors") if path.stem.isdecimal()]


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
