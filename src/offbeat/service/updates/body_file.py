"""The file of a large body that arrives in pieces, with digest and norm.

Both are made while a piece is in the processor's cache.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

LARGEST_BEGINNING = 8 + 4096
"""Bytes of a body's beginning that are enough to find its entries."""

_COPIED = 2**14  # entries
_READ = 2**20  # bytes read at once from a file that is continued
# Linux then begins to write changed pages to the disk, so that the sync at the end is short; other systems lack it.
_WRITE_SOON = getattr(os, "POSIX_FADV_DONTNEED", None)

EntryKind = Literal["F32", "BF16"]
"""A type of entries: float32 or bfloat16."""

Bytes = bytes | bytearray | memoryview


class Digest(Protocol):
    """A digest that grows, as of ``hashlib.sha256()`` or ``blake3.blake3()``."""

    def update(self, data: Bytes, /) -> object:
        """Add bytes."""
        ...

    def hexdigest(self) -> str:
        """Return the digest of all bytes so far."""
        ...


@dataclass(frozen=True, slots=True)
class Entries:
    """The place of a vector's entries in a body, and their type."""

    kind: EntryKind
    start: int
    end: int  # also the body's


FindEntries = Callable[[bytes], Entries | None]


class BodyFile:
    """A body's file, open to be continued at its end.

    It does its work in the calling thread, of one caller at a time. After a write that failed the attribute ``size`` is
    −1: it is unknown, and the body has to begin anew or to be opened again by the file's own size.

    Args:
        path: The file.
        size: Bytes that it has; 0 to begin anew.
        new_digest: ``hashlib.sha256``, ``blake3.blake3`` or the like.
        find_entries: Given the body's first ``LARGEST_BEGINNING`` bytes, or all of a shorter one, returns where its
            entries are, None if they have no norm here (a compressed, masked or malformed body).
        before: The same file as it was last opened, which saves reading it again; None if it never was.
    """

    def __init__(
        self,
        path: Path,
        size: int,
        new_digest: Callable[[], Digest],
        find_entries: FindEntries,
        before: "BodyFile | None" = None,
    ) -> None:
        self.size = size
        self._name = path, new_digest
        self._is_known = before is not None and before._name == self._name and before.size == size > 0
        self._checks = before._checks if before is not None and self._is_known else _Checks(new_digest(), find_entries)
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | (0 if size else os.O_TRUNC), 0o600)

    def prepare(self) -> None:
        """Read the bytes that the file has, unless they are known; must be called first."""
        if self._is_known or not self.size:
            return
        at, buffer = 0, memoryview(bytearray(_READ))
        while at < self.size:
            got = os.preadv(self._descriptor, [buffer[: min(_READ, self.size - at)]], at)
            if not got:
                raise OSError(f"{self._name[0]} ends before byte {self.size}")
            self._checks.add([buffer[:got]])
            at += got

    def write(self, pieces: Sequence[Bytes]) -> None:
        """Append up to 1024 pieces; after an ``OSError`` some bytes may have been written."""
        begin, size = self.size, sum(map(len, pieces))
        self.size = -1
        self._checks.add(pieces)
        written = os.pwritev(self._descriptor, pieces, begin)
        if written < size:
            rest = memoryview(b"".join(pieces))
            while written < size:
                written += os.pwrite(self._descriptor, rest[written:], begin + written)
        if _WRITE_SOON is not None:
            os.posix_fadvise(self._descriptor, begin, size, _WRITE_SOON)
        self.size = begin + size

    def digest(self) -> str:
        """Return the digest of all that was written, in hexadecimal."""
        return self._checks.digest.hexdigest()

    def norm(self) -> float | None:
        """Return the Euclidean norm of the whole body's vector; None if it has none here.

        It is accurate to float32's precision; the last digits depend on where the pieces ended. It is NaN if an entry
        is NaN or infinite. A body with a norm ends where ``find_entries`` has said, so its form is right.
        """
        return self._checks.norm(self.size)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class _Checks:
    """A body's digest and norm so far."""

    def __init__(self, digest: Digest, find_entries: FindEntries) -> None:
        self.digest = digest
        self._find_entries = find_entries
        self._entries: Entries | None = None
        self._squares: Squares | None = None
        self._beginning: bytearray | None = bytearray()  # until the entries are found

    def add(self, pieces: Sequence[Bytes]) -> None:
        for piece in pieces:
            self.digest.update(piece)
            if self._beginning is not None:
                self._beginning += piece
                if len(self._beginning) >= LARGEST_BEGINNING:
                    self._find()
            elif self._squares is not None:
                self._squares.add(memoryview(piece))

    def norm(self, size: int) -> float | None:
        self._find()
        if self._squares is None or self._entries is None or self._entries.end != size:
            return None
        return self._squares.norm()

    def _find(self) -> None:
        if self._beginning is None:
            return
        self._entries = entries = self._find_entries(bytes(self._beginning[:LARGEST_BEGINNING]))
        if entries is not None:
            self._squares = Squares(entries.kind)
            self._squares.add(memoryview(self._beginning)[entries.start :])
        self._beginning = None


class Squares:
    """The sum of the squares of entries, whose bytes come in order."""

    def __init__(self, kind: EntryKind) -> None:
        self._kind = kind
        self._bytes = 4 if kind == "F32" else 2  # of an entry
        self._rest = b""  # of an entry that a piece has cut
        self._sum = 0.0

    def add(self, piece: memoryview) -> None:
        """Add bytes, which may end within an entry."""
        if self._rest:
            missing = self._bytes - len(self._rest)
            entry = self._rest + piece[:missing]
            piece = piece[missing:]
            if len(entry) < self._bytes:
                self._rest = entry
                return
            self._add(self._vector(memoryview(entry)))
        whole = len(piece) - len(piece) % self._bytes
        self._rest = bytes(piece[whole:])
        self._add(self._vector(piece[:whole]))

    def norm(self) -> float:
        """Return the Euclidean norm of all entries; NaN if one is not finite."""
        return math.sqrt(self._sum)  # of NaN: NaN

    def _vector(self, data: memoryview) -> "npt.NDArray[np.float32]":
        if self._kind == "F32":
            return np.frombuffer(data, "<f4")
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)

    def _add(self, vector: "npt.NDArray[np.float32]") -> None:
        if not vector.flags.aligned:  # NumPy copies such vectors: in parts that stay in the cache
            for begin in range(0, len(vector), _COPIED):
                self._add(vector[begin : begin + _COPIED].copy())
            return
        with np.errstate(over="ignore", invalid="ignore"):
            square = float(np.dot(vector, vector))
            if not math.isfinite(square):  # a float32 may have overflown though all entries are finite
                double = vector.astype(np.float64)
                square = float(np.dot(double, double)) if np.isfinite(double).all() else math.nan
        self._sum += square
