"""Data sets in idx files, the format of MNIST.

Source: http://yann.lecun.com/exdb/mnist/, "File formats".

A file starts with two zero bytes, a byte for the type of the elements (8: unsigned bytes, the only one supported), a
byte for the number of dimensions, and each dimension as four bytes, big-endian; the elements follow.
"""

import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.data.builtin.standardise import standardise
from offbeat.data.dataset import Dataset
from offbeat.data.source_files import Source

_UNSIGNED_BYTE = 8


@dataclass(frozen=True)
class IdxDataset:
    """Grey images of ten classes in four idx files.

    The source's files are training images, training labels, test images and test labels. ``shapes`` and
    ``content_sha256`` are the dimensions and the hexadecimal SHA-256 of each decompressed file, by its name; ``mean``
    and ``deviation`` are those of the training pixels, scaled to [0, 1].
    """

    source: Source
    shapes: Mapping[str, tuple[int, ...]]
    content_sha256: Mapping[str, str]
    mean: float
    deviation: float

    def load(self) -> Dataset:
        """Return the data set, with standardised inputs ``(n, 1, height, width)``."""
        train_images, train_labels, test_images, test_labels = (
            read_idx(path, self.shapes[name], self.content_sha256[name])
            for name, path in zip(self.source.files, self.source.get(), strict=True)
        )
        return Dataset(
            name=self.source.name,
            train_inputs=standardise(train_images[:, np.newaxis], [self.mean], [self.deviation]),
            train_labels=train_labels.astype(np.int64),
            test_inputs=standardise(test_images[:, np.newaxis], [self.mean], [self.deviation]),
            test_labels=test_labels.astype(np.int64),
            classes=10,
        )


def read_idx(path: Path, shape: tuple[int, ...], sha256: str) -> NDArray[np.uint8]:
    """Return the elements of a gzipped idx file of unsigned bytes, read-only.

    The file is not trusted: at most one byte more than the expected length is decompressed. ``sha256`` is that of the
    decompressed file, since distributors compress the files again.
    """
    header = struct.pack(f">HBB{len(shape)}I", 0, _UNSIGNED_BYTE, len(shape), *shape)
    length = len(header) + math.prod(shape)
    try:
        with gzip.open(path) as file:
            # The extra byte reveals a file that is too long, and makes gzip read up to its checksum at the end.
            content = file.read(length + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OffbeatError(f"cannot read {path}: {reason}; remove or replace it") from error
    problem = _find_problem(content, header, length, shape, sha256)
    if problem:
        raise OffbeatError(f"{path} is not the expected file: {problem}; remove or replace it")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)


def _find_problem(content: bytes, header: bytes, length: int, shape: tuple[int, ...], sha256: str) -> str | None:
    """Return how the content differs from the expected file; None if it does not."""
    if len(content) < len(header):
        return f"it holds only {len(content)} bytes"
    if content[:4] != header[:4]:
        return f"it starts with {content[:4].hex()}, not with {header[:4].hex()}"
    if content[: len(header)] != header:
        return f"its dimensions are {struct.unpack_from(f'>{len(shape)}I', content, 4)}, not {shape}"
    if len(content) != length:
        return f"it holds {'more' if len(content) > length else 'fewer'} than {length} bytes"
    if hashlib.sha256(content).hexdigest() != sha256:
        return "the SHA-256 of its content differs (is it from another data set?)"
    return None
