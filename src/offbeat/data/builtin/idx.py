"""Reading idx files, the format of MNIST and its relatives (http://yann.lecun.com/exdb/mnist/, "File formats").

A file starts with two zero bytes, a byte for the type of the elements (8: unsigned bytes, the only one here), a
byte for the number of dimensions and each dimension as 4 bytes, high byte first; the elements follow.
"""

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError

_UNSIGNED_BYTE = 8


def read_idx(path: Path, shape: tuple[int, ...], sha256: str) -> NDArray[np.uint8]:
    """Return the elements of a gzipped idx file of unsigned bytes, of which everything is known beforehand.

    The file may come from anywhere, so no more than one byte above the known length is ever decompressed.

    Args:
        path: The file.
        shape: The dimensions that it must have.
        sha256: The hexadecimal SHA-256 of the decompressed file. (That of the compressed file would not do:
            distributors compress again, which gives other bytes.)

    Returns:
        Array of that shape, read-only.

    Raises:
        OffbeatError: The file cannot be read or is not the one that was asked for; the message names it.
    """
    header = struct.pack(f">HBB{len(shape)}I", 0, _UNSIGNED_BYTE, len(shape), *shape)
    length = len(header) + math.prod(shape)
    try:
        with gzip.open(path) as file:
            # The byte above shows what is too long, and makes gzip reach the end, where its checksum is.
            content = file.read(length + 1)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OffbeatError(f"cannot read {path}: {reason}; remove or replace it") from error
    problem = _problem(content, header, length, shape, sha256)
    if problem:
        raise OffbeatError(f"{path} is not the expected file: {problem}; remove or replace it")
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape)


def _problem(content: bytes, header: bytes, length: int, shape: tuple[int, ...], sha256: str) -> str | None:
    """Return what is wrong with an idx file's content, the plainest thing first, or None."""
    if len(content) < len(header):
        return f"it holds only {len(content)} bytes"
    if content[:4] != header[:4]:
        return f"it starts with {content[:4].hex()}, not with {header[:4].hex()}"
    if content[: len(header)] != header:
        return f"its dimensions are {struct.unpack_from(f'>{len(shape)}I', content, 4)}, not {shape}"
    if len(content) != length:
        return f"it holds {'more' if len(content) > length else 'fewer'} than {length} bytes"
    if hashlib.sha256(content).hexdigest() != sha256:
        return "the SHA-256 of its content is another one (is it from another data set?)"
    return None
