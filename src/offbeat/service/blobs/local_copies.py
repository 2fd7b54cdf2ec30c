"""Local copies of blobs that lie elsewhere, bounded in bytes."""

import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

_KEPT_SECONDS = 10.0


@dataclass
class LocalCopy:
    """A file with a blob's content; ``sha256`` is None until somebody has computed it."""

    path: Path
    size: int
    sha256: str | None
    used: float


class LocalCopies:
    """Files of at most ``limit`` bytes; the least recently used go first.

    A copy that was asked for in the last 10 seconds stays, so that who asked can open it: those, and what is being
    downloaded, may exceed the limit. The folder belongs to this object alone and begins empty, since a copy that was
    never synced may be torn after a loss of power. All methods may be called in any thread and raise ``OSError``.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._lock = threading.Lock()
        self._copies: OrderedDict[str, LocalCopy] = OrderedDict()  # by name, the least recently used first
        self._downloads: dict[str, Future[LocalCopy]] = {}
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(0o700, parents=True, exist_ok=True)

    def get(self, name: str, download: Callable[[Path], str]) -> LocalCopy:
        """Return the copy of a blob; several threads that want the same download it once.

        Args:
            name: The blob.
            download: Writes the blob into a new file, and returns its SHA-256. All that wait get its error.
        """
        future = Future[LocalCopy]()
        with self._lock:
            if copy := self._held(name):
                return copy
            first = self._downloads.setdefault(name, future)
        if first is not future:
            return first.result()
        partial = self._folder / f".partial-{token_hex(16)}"
        try:
            sha256 = download(partial)
            copy = self.add(name, partial, sha256)
        except BaseException as error:
            future.set_exception(error)
            raise
        else:
            future.set_result(copy)
            return copy
        finally:
            with self._lock:
                del self._downloads[name]
            with suppress(OSError):
                partial.unlink(missing_ok=True)

    def add(self, name: str, file: Path, sha256: str | None = None) -> LocalCopy:
        """Take a complete file over as a blob's copy."""
        path = self._folder / name.replace("/", "_")  # which is in no name
        size = file.stat().st_size
        shutil.move(file, path)
        copy = LocalCopy(path, size, sha256, time.monotonic())
        with self._lock:
            self._copies[name] = copy
            self._copies.move_to_end(name)
            self._shrink()
        return copy

    def forget(self, name: str) -> None:
        """Delete a blob's copy, if there is one."""
        with self._lock:
            if copy := self._copies.pop(name, None):
                copy.path.unlink(missing_ok=True)

    def _held(self, name: str) -> LocalCopy | None:
        copy = self._copies.get(name)
        if copy is None or not copy.path.exists():
            return None
        copy.used = time.monotonic()
        self._copies.move_to_end(name)
        return copy

    def _shrink(self) -> None:
        size = sum(copy.size for copy in self._copies.values())
        for name, copy in list(self._copies.items()):
            if size <= self._limit or copy.used > time.monotonic() - _KEPT_SECONDS:
                return
            del self._copies[name]
            copy.path.unlink(missing_ok=True)
            size -= copy.size
