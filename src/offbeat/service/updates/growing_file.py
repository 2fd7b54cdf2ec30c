"""A body that comes in pieces, in a file that grows, and its SHA-256 on the way."""

import hashlib
import os
from pathlib import Path

# Linux then begins to bring what is dirty to the disk, so that the sync at the end is short. Elsewhere it goes without.
_WRITE_SOON = getattr(os, "POSIX_FADV_DONTNEED", None)


class GrowingFile:
    """One file, opened to go on at its end, or to begin anew.

    Args:
        path: The file.
        size: Where to go on: its size, or 0.
        before: The same file as it was opened the last time, in which case nothing need be read again; None if it
            never was.

    Attributes:
        size: How many bytes it has.
    """

    def __init__(self, path: Path, size: int, before: "GrowingFile | None" = None) -> None:
        self.size = size
        self._path = path
        self._descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | (0 if size else os.O_TRUNC), 0o600)
        if before is not None and before._path == path and before.size == size:
            self._digest = before._digest
        else:
            self._digest = None if size else hashlib.sha256()

    def prepare(self) -> None:
        """Read what is there, if nobody knows its digest; comes before all else."""
        if self._digest is None:
            with self._path.open("rb") as file:
                self._digest = hashlib.file_digest(file, "sha256")

    def write(self, pieces: list[bytes]) -> None:
        """Append these, at most 1024.

        Raises:
            OSError: The disk is full; some may have been written.
        """
        begin, whole = self.size, sum(map(len, pieces))
        self.size = -1  # unknown, if it fails
        written = os.pwritev(self._descriptor, pieces, begin)
        if written < whole:
            rest = memoryview(b"".join(pieces))
            while written < whole:
                written += os.pwrite(self._descriptor, rest[written:], begin + written)
        assert self._digest is not None
        for piece in pieces:
            self._digest.update(piece)
        if _WRITE_SOON is not None:
            os.posix_fadvise(self._descriptor, begin, whole, _WRITE_SOON)
        self.size = begin + whole

    def sha256(self) -> str:
        """Return the digest of what has been written, in hexadecimal."""
        assert self._digest is not None
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
