"""Blobs in a folder."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from offbeat_core.files import sync_file, sync_folder

from offbeat.service.blobs.blobs import BlobExistsError, BlobsUnavailableError, NoSuchBlobError, check_name

_PARTIAL = ".partial-"


class FolderBlobs:
    """A file for each blob, which appears once its content is on the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str) -> Path:
        """Return a blob's file."""
        return self._folder / check_name(name)

    async def create(self, name: str, content: bytes) -> None:
        """Store a blob; see ``Blobs``."""
        await asyncio.to_thread(self._create, self.path(name), content)

    async def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        """Return bytes of a blob; see ``Blobs``."""
        return await asyncio.to_thread(self._read, self.path(name), begin, end)

    async def delete(self, name: str) -> None:
        """Delete a blob, if it is there."""
        self.path(name).unlink(missing_ok=True)

    async def names(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of all blobs below a folder."""
        for path in await asyncio.to_thread(lambda: list(self.path(prefix).rglob("*"))):
            if path.is_file() and not path.name.startswith(_PARTIAL):
                yield path.relative_to(self._folder).as_posix()

    async def url(self, name: str, seconds: int) -> str | None:
        """Return None: files have no URL."""
        return None

    def _create(self, path: Path, content: bytes) -> None:
        partial = path.with_name(f"{_PARTIAL}{token_hex(8)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                sync_file(file.fileno())
            os.link(partial, path)  # which, unlike a rename, fails if the name is taken
            sync_folder(path.parent)
        except FileExistsError:
            raise BlobExistsError(path.name) from None
        except OSError as error:
            raise BlobsUnavailableError(f"{path}: {error.strerror}") from error
        finally:
            with suppress(OSError):
                partial.unlink()

    def _read(self, path: Path, begin: int, end: int | None) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(begin)
                return file.read(-1 if end is None else end - begin)
        except FileNotFoundError:
            raise NoSuchBlobError(path.name) from None
        except OSError as error:
            raise BlobsUnavailableError(f"{path}: {error.strerror}") from error
