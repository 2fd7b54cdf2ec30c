"""The promises of a store of blobs, whatever keeps them."""

import re
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from offbeat_core.digests import digest_of_file, kind_of

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*(/[a-z0-9][a-z0-9.-]*)*")
_LONGEST_NAME = 200


class BlobExistsError(Exception):
    """Another blob has this name."""


class NoSuchBlobError(Exception):
    """There is no blob of this name."""


class BlobsUnavailableError(Exception):
    """The store cannot be reached, refuses, or has no space; one line says which.

    A blob whose creation ends so may appear under its name later.
    """


class BrokenBlobError(Exception):
    """A blob's content does not have the digest that it should have."""


class Blobs(Protocol):
    """Large bodies by name: written once, never changed.

    A name has at most 200 characters: parts of lower-case letters, digits, points and hyphens, separated by slashes. No
    name is a folder of another. Names hold a digest of their content, or random digits, so that nobody wants one for
    other content. Other names, and empty content, raise ``ValueError``. Every method may raise
    ``BlobsUnavailableError``. ``str`` returns where the blobs are.
    """

    async def create(self, name: str, content: bytes | Path) -> None:
        """Store a blob; return once it is durable, as far as the store promises that.

        Args:
            name: A new name.
            content: Bytes, or a complete file of this machine. The store takes the file over: it is no longer under
                its path afterwards. If the call raises, it still is.

        Raises:
            BlobExistsError: The name is taken.
        """
        ...

    def fetch(self, name: str, sha256: str | None = None) -> Path:
        """Return the path of a local file with the blob's content.

        This blocks: call it in a thread. The file must not be changed. Open it at once, since it may be deleted later;
        an open file or memory map remains readable.

        Args:
            name: The blob.
            sha256: The digest that the content must have, in hexadecimal digits; None: whatever is there is returned.

        Raises:
            NoSuchBlobError: There is none.
            BrokenBlobError: The content has another digest.
        """
        ...

    def forget(self, name: str) -> None:
        """Delete the local copy of a blob, not the blob."""
        ...

    async def delete(self, name: str) -> None:
        """Delete a blob, if it is there, and its local copy."""
        ...

    def names(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of all blobs below a folder, in any order."""
        ...

    async def url(self, name: str, seconds: int) -> str | None:
        """Return a URL of the blob for anybody; None if the store has none."""
        ...


def check_name(name: str) -> str:
    """Return a blob's name; raise ``ValueError`` if it is none."""
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of a blob")
    return name


def size_of(content: bytes | Path) -> int:
    """Return the size of a blob to create; raise ``ValueError`` if it is empty."""
    size = content.stat().st_size if isinstance(content, Path) else len(content)
    if size == 0:
        raise ValueError("a blob cannot be empty")
    return size


@contextmanager
def checked_blob(blobs: Blobs, name: str, digest: str) -> Generator[Path]:
    """Lend the file of a blob with this digest; see ``Blobs.fetch``.

    If it is deleted before its user has opened it, the context raises ``NoSuchBlobError``, too.
    """
    kind = kind_of(digest)
    path = blobs.fetch(name, digest if kind == "sha256" else None)
    try:
        if kind != "sha256" and (found := digest_of_file(path, kind)) != digest:
            blobs.forget(name)
            check_digest(name, found, digest)
        yield path
    except FileNotFoundError:
        if path.exists():
            raise
        raise NoSuchBlobError(f"there is no blob {name}") from None


def check_digest(name: str, found: str, wanted: str | None) -> None:
    """Raise ``BrokenBlobError`` if a blob does not have the digest that is wanted."""
    if wanted is not None and found != wanted:
        raise BrokenBlobError(f"the blob {name} has the digest {found} instead of {wanted}")
