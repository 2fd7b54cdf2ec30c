"""The file of an update that arrives in pieces, and its digest so far."""

import hashlib
import os
from pathlib import Path

# Linux then begins to write changed pages to the disk, so that the sync at the end is short; other systems lack it.
_WRITE_SOON = getattr(os, "POSIX_FADV_DONTNEED", None)


class GrowingFile:
    """A file, opened to be continued at its end, ``size``, or to begin anew, at 0.

    ``before`` is the same file as it was last opened, which saves reading it again; None if it never was. After a write
    that failed the attribute ``size`` is −1: it is unknown.
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
        """Read the file if its digest is unknown; must be called first."""
        if self._digest is None:
            with self._path.open("rb") as file:
                self._digest = hashlib.file_digest(file, "sha256")

    def write(self, pieces: list[bytes]) -> None:
        """Append up to 1024 pieces; after an ``OSError`` some bytes may have been written."""
        begin, size = self.size, sum(map(len, pieces))
        self.size = -1
        written = os.pwritev(self._descriptor, pieces, begin)
        if written < size:
            rest = memoryview(b"".join(pieces))
            while written < size:
                written += os.pwrite(self._descriptor, rest[written:], begin + written)
        assert self._digest is not None
        for piece in pieces:
            self._digest.update(piece)
        if _WRITE_SOON is not None:
            os.posix_fadvise(self._descriptor, begin, size, _WRITE_SOON)
        self.size = begin + size

    def sha256(self) -> str:
        """Return the digest of all that was written, in hexadecimal."""
        assert self._digest is not None
        return self._digest.hexdigest()

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
