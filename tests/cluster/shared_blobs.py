"""The blobs of several servers in memory, and a server's connection to them: a ``Blobs``."""

import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

from offbeat.service.blobs.blobs import (
    BlobExistsError,
    BlobsUnavailableError,
    NoSuchBlobError,
    check_digest,
    check_name,
    size_of,
)
from tests.cluster.link import BrokenLinkError, Link, NotSentError

T = TypeVar("T")


class SharedBlobs:
    """The blobs, as an object store keeps them; ``history`` has also those that were deleted."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.history: dict[str, bytes] = {}

    def create(self, name: str, content: bytes) -> None:
        if name in self.blobs:
            raise BlobExistsError(f"there is a blob {name} already")
        self.blobs[name] = self.history[name] = content


class BlobsConnection:
    """A server's connection to the blobs, with local copies in a folder."""

    def __init__(self, store: SharedBlobs, link: Link, folder: Path) -> None:
        self._store = store
        self._link = link
        self._folder = folder

    def __str__(self) -> str:
        return "the simulated blobs"

    async def create(self, name: str, content: bytes | Path) -> None:
        check_name(name)
        size_of(content)
        value = content if isinstance(content, bytes) else content.read_bytes()
        await self._ask(name, lambda: self._store.create(name, value))
        if isinstance(content, Path):
            content.unlink()

    def fetch(self, name: str, sha256: str | None = None) -> Path:
        if self._link.fails_now():
            raise BlobsUnavailableError(f"the blob {name}: no connection")
        content = self._store.blobs.get(check_name(name))
        if content is None:
            raise NoSuchBlobError(f"there is no blob {name}")
        check_digest(name, hashlib.sha256(content).hexdigest(), sha256)
        path = self._copy(name)
        path.write_bytes(content)
        return path

    def forget(self, name: str) -> None:
        self._copy(name).unlink(missing_ok=True)

    async def delete(self, name: str) -> None:
        await self._ask(name, lambda: self._store.blobs.pop(name, None))

    async def names(self, prefix: str) -> AsyncIterator[str]:
        for name in await self._ask(prefix, lambda: sorted(self._store.blobs)):
            if name.startswith(f"{prefix}/"):
                yield name

    async def url(self, name: str, seconds: int) -> str | None:
        return None

    def _copy(self, name: str) -> Path:
        return self._folder / f".blob-{name.replace('/', '_')}"

    async def _ask(self, name: str, work: Callable[[], T]) -> T:
        try:
            return await self._link.call(work)
        except (NotSentError, BrokenLinkError) as error:
            raise BlobsUnavailableError(f"the blob {name}: {error}") from None
