"""The promises of a store of blobs, whatever keeps them."""

import re
from collections.abc import AsyncIterator
from typing import Protocol

NAME = re.compile(r"[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9.-]*)*")
"""The names of blobs: parts of lower-case letters, digits, points and hyphens, separated by slashes."""


class BlobExistsError(Exception):
    """A blob of this name is there already."""


class NoSuchBlobError(Exception):
    """There is no blob of this name."""


class BlobsUnavailableError(Exception):
    """The store cannot be reached, or has no space.

    Whether a blob was created is not known.
    """


class Blobs(Protocol):
    """Bytes by name.

    A name holds digits of their digest or of chance, so nobody wants it for other bytes. Every method may raise
    ``BlobsUnavailableError``.
    """

    async def create(self, name: str, content: bytes) -> None:
        """Store a blob; return once it is durable.

        Raises:
            BlobExistsError: The name is taken.
        """
        ...

    async def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        """Return a blob's bytes from ``begin`` up to ``end``, or its own end.

        Raises:
            NoSuchBlobError: There is none.
        """
        ...

    async def delete(self, name: str) -> None:
        """Delete a blob, if it is there."""
        ...

    def names(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of all blobs below a folder, in any order."""
        ...

    async def url(self, name: str, seconds: int) -> str | None:
        """Return a URL for anybody to read the blob; None if the store has none."""
        ...


def check_name(name: str) -> str:
    """Return a blob's name; raise ``ValueError`` if it is none."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a blob")
    return name
