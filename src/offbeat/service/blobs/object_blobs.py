"""Blobs in an object store: S3 and what speaks like it, Google's, Azure's."""

from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store, from_url
from offbeat_core.errors import OffbeatError

from offbeat.service.blobs.blobs import BlobExistsError, BlobsUnavailableError, NoSuchBlobError, check_name


class ObjectBlobs:
    """An object for each blob, below a prefix of a bucket."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def create(self, name: str, content: bytes) -> None:
        """Store a blob; see ``Blobs``."""
        with _translated(name):
            try:
                await obstore.put_async(self._store, check_name(name), content, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                raise BlobExistsError(name) from None

    async def read(self, name: str, begin: int = 0, end: int | None = None) -> bytes:
        """Return bytes of a blob; see ``Blobs``."""
        with _translated(name):
            if begin == 0 and end is None:
                result = await obstore.get_async(self._store, check_name(name))
                return bytes(await result.bytes_async())
            if end is None:
                result = await obstore.get_async(self._store, check_name(name), options={"range": {"offset": begin}})
                return bytes(await result.bytes_async())
            return bytes(await obstore.get_range_async(self._store, check_name(name), start=begin, end=end))

    async def delete(self, name: str) -> None:
        """Delete a blob, if it is there."""
        with _translated(name):
            try:
                await obstore.delete_async(self._store, check_name(name))
            except FileNotFoundError:
                return

    async def names(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of all blobs below a folder."""
        with _translated(prefix):
            async for listed in obstore.list(self._store, check_name(prefix)):
                for one in listed:
                    yield one["path"]

    async def url(self, name: str, seconds: int) -> str | None:
        """Return a URL for anybody to read the blob; None if the store has none."""
        if not isinstance(self._store, S3Store | GCSStore | AzureStore):
            return None
        with _translated(name):
            return await obstore.sign_async(self._store, "GET", check_name(name), timedelta(seconds=seconds))


def object_blobs(url: str, **options: Any) -> ObjectBlobs:
    """Return the blobs below a URL: ``s3://BUCKET/PREFIX``, ``gs://``, ``az://``.

    Credentials come from the environment, as the store's own tools take them.

    Raises:
        OffbeatError: It is not the URL of a store.
    """
    try:
        return ObjectBlobs(from_url(url, **options))
    except (BaseError, ValueError) as error:
        first = str(error).strip().partition("\n")[0]
        raise OffbeatError(f"store.blobs cannot be {url!r}: {first}") from None


@contextmanager
def _translated(name: str) -> Generator[None]:
    try:
        yield
    except FileNotFoundError:
        raise NoSuchBlobError(name) from None
    except (BaseError, OSError) as error:
        raise BlobsUnavailableError(f"{name}: {str(error).strip().partition(chr(10))[0]}") from error
