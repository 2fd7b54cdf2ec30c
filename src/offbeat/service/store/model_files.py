"""Files of the model's versions, which clients download."""

import json
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from offbeat_core.files import delete_files, sha256
from offbeat_core.model_file import DOWN
from torch import Tensor

from offbeat.service.store.database import numbers_of
from offbeat.service.store.shared_files import model_path
from offbeat.tensor_file import write_tensors

T = TypeVar("T")

Layout = Sequence[tuple[str, Sequence[int]]]
"""The model's trainable parameters by name, each with its shape, in the order in which they make up the vector."""


class ModelFiles:
    """A folder of safetensors files, one for each version.

    A version is *pending*, under a hidden name that only the server reads, until the log's rows that it is made of
    are on disk. Then it is *published* under its own name, for downloads, evaluations, exports and backups. It can be
    made again from these rows, so the file itself need not be synced. ``length`` is d, the number of parameters.
    """

    def __init__(self, folder: Path, layout: Layout) -> None:
        self.length = sum(_size(shape) for _, shape in layout)
        self._folder = folder
        self._layout = layout
        self._layout_text = json.dumps([[name, list(shape)] for name, shape in layout])
        self._digests: dict[int, str] = {}  # by version

    def path(self, version: int) -> Path:
        """Return the file of a published version."""
        return model_path(self._folder, version)

    def pending_path(self, version: int) -> Path:
        """Return the file of a pending version."""
        return self._folder / f".{version}.pending"

    def versions(self) -> set[int]:
        """Return all published versions."""
        return set(numbers_of(self._folder))

    def write(self, version: int, vector: Tensor, down: Tensor | None = None) -> None:
        """Write a version, float32 ``(d,)``, as pending, unless it is published."""
        if self.path(version).exists():
            return
        # The model comes last, where ``read`` maps it.
        tensors = {**({} if down is None else {DOWN: down}), **self._by_name(vector)}
        pending = self.pending_path(version)
        try:
            with pending.open("wb") as file:
                write_tensors(file, tensors, {"version": str(version), "layout": self._layout_text})
        except OSError:
            pending.unlink(missing_ok=True)
            raise
        self._digests[version] = sha256(pending)

    def publish(self, version: int) -> None:
        """Publish a pending version; do nothing if it is published."""
        with suppress(FileNotFoundError):
            self.pending_path(version).replace(self.path(version))

    def digest(self, version: int) -> str:
        """Return the SHA-256 of the file of a pending or published version."""
        if version not in self._digests:
            self._digests[version] = self._with_file(version, sha256)
        return self._digests[version]

    def differs(self, version: int, digest: str) -> bool:
        """Return whether the file of a version, if it is kept, has another SHA-256."""
        try:
            return self.digest(version) != digest
        except FileNotFoundError:
            return False

    def read(self, version: int) -> Tensor:
        """Return a pending or published version, float32 ``(d,)``, as a memory map."""
        return self._with_file(version, self._map)

    def named(self, version: int) -> dict[str, Tensor]:
        """Return a pending or published version by name, as a memory map."""
        return self._by_name(self.read(version))

    def link(self, version: int, path: Path) -> None:
        """Give the file of a pending or published version another name on the same disk."""
        self._with_file(version, lambda file: os.link(file, path))

    def _with_file(self, version: int, use: Callable[[Path], T]) -> T:
        # The event loop may publish the version while a thread reads it.
        with suppress(FileNotFoundError):
            return use(self.pending_path(version))
        return use(self.path(version))

    def _map(self, path: Path) -> Tensor:
        start = path.stat().st_size - 4 * self.length
        return torch.from_numpy(np.require(np.memmap(path, "<f4", "c", start, (self.length,)), requirements=["E"]))

    def _by_name(self, vector: Tensor) -> dict[str, Tensor]:
        parts = vector.split([_size(shape) for _, shape in self._layout])
        return {name: part.reshape(tuple(shape)) for part, (name, shape) in zip(parts, self._layout, strict=True)}

    def forget(self, kept: Collection[int]) -> list[Path]:
        """Return the files of all other published versions, which are to be deleted."""
        others = self.versions() - set(kept)
        for version in others:
            self._digests.pop(version, None)
        return [self.path(version) for version in others]

    def discard_pending(self) -> None:
        """Delete an earlier server's pending versions."""
        delete_files(self._folder.glob(".*.pending"))


def _size(shape: Sequence[int]) -> int:
    return int(np.prod(shape, dtype=np.int64))
