"""Blobs in a folder."""

import asyncio
import errno
import os
import shutil
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from offbeat_core.files import sha256 as digest_of
from offbeat_core.files import sync_file, sync_folder

from offbeat.service.blobs.blobs import (
    BlobExistsError,
    BlobsUnavailableError,
    NoSuchBlobError,
    check_digest,
    check_name,
    size_of,
)

_PARTIAL = ".partial"
_LEFTOVER_SECONDS = 86_400


class FolderBlobs:
    """A file for each blob.

    It appears under its name once its content is on the disk. A file to create is linked to its name if it is on the
    same file system, else copied. The file system must have hard links: unlike a rename, a link fails if the name is
    taken. Several processes may use one folder. ``fetch`` returns the blob's own file; it is not deleted if it is
    broken.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._partial = folder / _PARTIAL
        self._delete_leftovers()

    def __str__(self) -> str:
        return f"the folder {self._folder}"

    async def create(self, name: str, content: bytes | Path) -> None:
        """Store a blob; see ``Blobs``."""
        await asyncio.to_thread(self._create, check_name(name), content)

    def fetch(self, name: str, sha256: str | None = None) -> Path:
        """Return the blob's file; see ``Blobs``. With a digest, it is read in full."""
        path = self._folder / check_name(name)
        with _translated(name):
            try:
                if not path.is_file():
                    raise FileNotFoundError
                if sha256 is not None:
                    check_digest(name, digest_of(path), sha256)
            except FileNotFoundError:
                raise NoSuchBlobError(f"there is no blob {name}") from None
        return path

    def forget(self, name: str) -> None:
        """Do nothing: there are no copies."""

    async def delete(self, name: str) -> None:
        """Delete a blob, if it is there."""
        with _translated(name):
            await asyncio.to_thread((self._folder / check_name(name)).unlink, missing_ok=True)

    async def names(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of all blobs below a folder."""
        folder = self._folder / check_name(prefix)
        with _translated(prefix):
            paths = await asyncio.to_thread(lambda: [path for path in folder.rglob("*") if path.is_file()])
        for path in paths:
            yield path.relative_to(self._folder).as_posix()

    async def url(self, name: str, seconds: int) -> str | None:
        """Return None: files have no URL."""
        return None

    def _create(self, name: str, content: bytes | Path) -> None:
        path = self._folder / name
        with _translated(name):
            size_of(content)
            _make_durably(path.parent)
            if isinstance(content, bytes) or not _link_durably(content, path):
                with self._written(content) as partial:
                    _link_durably(partial, path)
            if isinstance(content, Path):
                content.unlink(missing_ok=True)

    @contextmanager
    def _written(self, content: bytes | Path) -> Generator[Path]:
        """Write a file on this file system, which the context's end deletes."""
        _make_durably(self._partial)
        partial = self._partial / token_hex(16)
        try:
            with partial.open("xb") as file:
                if isinstance(content, bytes):
                    file.write(content)
                else:
                    with content.open("rb") as source:
                        shutil.copyfileobj(source, file, 1 << 20)
            yield partial
        finally:
            with suppress(OSError):
                partial.unlink()

    def _delete_leftovers(self) -> None:
        """Delete what killed processes left; younger files may be in use."""
        with suppress(OSError):
            for path in self._partial.iterdir():
                if path.stat().st_mtime < time.time() - _LEFTOVER_SECONDS:
                    path.unlink()


def _link_durably(source: Path, path: Path) -> bool:
    """Give a file a new name, with both on disk afterwards.

    Return False if it is on another file system.

    Raises:
        BlobExistsError: The name is taken.
        OSError: The disk failed; the name is free again if that is still possible.
    """
    sync_file(source)
    try:
        os.link(source, path)
    except FileExistsError:
        raise BlobExistsError(f"there is a blob {path.name} already") from None
    except OSError as error:
        if error.errno == errno.EXDEV:
            return False
        raise
    try:
        sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise
    return True


def _make_durably(folder: Path) -> None:
    """Make a folder and those above it, with their names on disk."""
    if folder.is_dir():
        return
    _make_durably(folder.parent)
    folder.mkdir(0o700, exist_ok=True)
    sync_folder(folder.parent)


@contextmanager
def _translated(name: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise BlobsUnavailableError(f"the blob {name}: {error.strerror}") from error
