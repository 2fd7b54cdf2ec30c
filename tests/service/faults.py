"""System calls on a folder that fail: the n-th one, in this process; SQLite's own calls are left alone."""

import builtins
import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ERRORS = {
    "open": (errno.EMFILE, errno.ENOSPC, errno.EIO),
    "write": (errno.ENOSPC, errno.EIO),
    "sync": (errno.EIO,),
    "rename": (errno.ENOSPC, errno.EIO),
    "unlink": (errno.EIO,),
}
"""Which system calls fail, and how."""

_BY_PATH = {"open": "open", "replace": "rename", "rename": "rename", "link": "rename", "unlink": "unlink"}
_BY_DESCRIPTOR = {
    "pwrite": "write",
    "pwritev": "write",
    "posix_fallocate": "write",
    "ftruncate": "write",
    "fsync": "sync",
    "fdatasync": "sync",
}


class Faults:
    """Counts the system calls of a kind on a folder's files, and lets the one with ``number``, from 0, fail."""

    def __init__(self, folder: Path, kind: str, number: int | None = None, error: int = 0) -> None:
        self.count = 0
        self.hit = ""
        self._folder = str(folder)
        self._kind = kind
        self._number = number
        self._error = error
        self._lock = threading.Lock()

    @contextmanager
    def on(self) -> Iterator[None]:
        """Count, and fail, within the context."""
        originals = {name: getattr(os, name) for name in {**_BY_PATH, **_BY_DESCRIPTOR}}
        opened = io.open
        for name, kind in _BY_PATH.items():
            setattr(os, name, self._failing(originals[name], kind, os.fspath))
        for name, kind in _BY_DESCRIPTOR.items():
            setattr(os, name, self._failing(originals[name], kind, _path_of))
        io.open = builtins.open = self._open(opened)  # pyright: ignore[reportAttributeAccessIssue]
        try:
            yield
        finally:
            io.open = builtins.open = opened
            for name, original in originals.items():
                setattr(os, name, original)

    def meet(self, kind: str, path: str) -> None:
        """Count a call, or let it fail."""
        if kind != self._kind or not path.startswith(self._folder) or ".sqlite" in path or path.endswith(".lock"):
            return
        with self._lock:
            number, self.count = self.count, self.count + 1
        if number == self._number:
            self.hit = path
            raise OSError(self._error, os.strerror(self._error), path)

    def _failing(self, original: Callable[..., Any], kind: str, path_of: Callable[[Any], str]) -> Callable[..., Any]:
        def call(first: Any, *arguments: Any, **more: Any) -> Any:
            self.meet(kind, path_of(first))
            return original(first, *arguments, **more)

        return call

    def _open(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, mode: str = "r", *arguments: Any, **more: Any) -> Any:
            if isinstance(path, int):
                return original(path, mode, *arguments, **more)
            self.meet("open", os.fspath(path))
            if mode != "wb":
                return original(path, mode, *arguments, **more)
            return io.BufferedWriter(_File(self, os.fspath(path)))

        return call


class _File(io.FileIO):
    """A file whose writes are counted."""

    def __init__(self, faults: Faults, path: str) -> None:
        super().__init__(path, "wb")
        self._faults = faults
        self._path = path

    def write(self, data: Any, /) -> int:
        """Write, or fail."""
        self._faults.meet("write", self._path)
        return super().write(data) or 0


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - pathlib's may be watched
