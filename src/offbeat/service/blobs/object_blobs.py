"""Blobs in an object store: S3 and what speaks like it, Google's, Azure's."""

import asyncio
import hashlib
import mmap
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore, S3Store
from offbeat_core.files import sha256 as digest_of

from offbeat.service.blobs.blobs import (
    BlobExistsError,
    BlobsUnavailableError,
    NoSuchBlobError,
    check_digest,
    check_name,
    size_of,
)
from offbeat.service.blobs.local_copies import LocalCopies
from offbeat.service.blobs.object_store import connect, is_final, reason

_PART = 8 << 20  # bytes
_SLOWEST = 2 << 20  # bytes per second of an upload
_WAITS = (0.5, 2.0)  # seconds before the second and the third attempt
_LONGEST_UPLOAD = 86_400  # seconds, far above what each upload may take


class ObjectBlobs:
    """An object for each blob, below a prefix of a bucket.

    **Create-only.** A blob, also a large one, is one PUT with ``If-None-Match: *``, sent from a memory map of its
    file. obstore ignores ``use_multipart`` with ``mode="create"``. S3 and SeaweedFS also check that condition when a
    multipart upload is completed, but obstore sends it there only for copies, and uploading under another name and
    copying would write everything twice. So a blob has at most the size of one PUT, 5 GiB in S3.

    **Unknown outcomes.** If a PUT fails after the store may have taken it, the object is read back: if it has the same
    content, it is this blob; other content raises ``BlobExistsError``; if there is none, the upload is tried again,
    three times in all. A create that raises ``BlobsUnavailableError`` may still take effect later.

    **Waiting.** A request may take S seconds (default 30). A read is tried three times, or until 2 S have passed: it
    takes at most 3 S for each part of 8 MiB. An upload of n bytes may take S + n / (2 MiB/s), then reading back its
    first part 3 S, so ``create`` of a small blob ends within 12 S + 3 seconds. A refusal (401, 403, no such bucket) is
    not tried again.
    """

    def __init__(self, url: str, copies: LocalCopies, request_seconds: float = 30) -> None:
        self._url = url
        self._copies = copies
        self._seconds = request_seconds
        self._store = connect(url, request_seconds, retries=2)
        # An upload that obstore repeats could find its own object and report that the name is taken.
        self._uploads = connect(url, _LONGEST_UPLOAD, retries=0)

    def __str__(self) -> str:
        return self._url

    async def create(self, name: str, content: bytes | Path) -> None:
        """Store a blob; see ``Blobs``. A file becomes the local copy."""
        check_name(name)
        size = size_of(content)
        await self._upload(name, content if isinstance(content, bytes) else _mapped(content), size)
        if isinstance(content, Path):
            await asyncio.to_thread(self._keep, name, content)

    def fetch(self, name: str, sha256: str | None = None) -> Path:
        """Return a local copy of a blob, downloaded if need be; see ``Blobs``.

        The digest is compared with that of the download; that of a file given to ``create`` is computed once.
        """
        check_name(name)
        with _disk_errors(name):
            copy = self._copies.get(name, lambda path: self._download(name, path))
            if sha256 is not None and copy.sha256 is None:
                copy.sha256 = digest_of(copy.path)
        if sha256 is not None and copy.sha256 != sha256:
            self.forget(name)
            check_digest(name, str(copy.sha256), sha256)
        return copy.path

    def forget(self, name: str) -> None:
        """Delete the local copy."""
        with _disk_errors(name):
            self._copies.forget(check_name(name))

    async def delete(self, name: str) -> None:
        """Delete a blob, if it is there."""
        try:
            with _store_errors(name):
                await obstore.delete_async(self._store, check_name(name))
        except NoSuchBlobError:
            pass
        self.forget(name)

    async def names(self, prefix: str) -> AsyncIterator[str]:
        """Yield the names of all blobs below a folder."""
        with _store_errors(prefix):
            async for listed in obstore.list(self._store, check_name(prefix)):
                for one in listed:
                    yield one["path"]

    async def url(self, name: str, seconds: int) -> str | None:
        """Return a presigned URL; None if the store has none."""
        if not isinstance(self._store, S3Store | GCSStore | AzureStore):
            return None
        with _store_errors(name):
            return await obstore.sign_async(self._store, "GET", check_name(name), timedelta(seconds=seconds))

    def _keep(self, name: str, file: Path) -> None:
        try:
            self._copies.add(name, file)
        except OSError:  # the blob is stored, so it can be downloaded
            file.unlink(missing_ok=True)

    async def _upload(self, name: str, content: bytes | memoryview, size: int) -> None:
        may_be_ours = False
        for wait in (*_WAITS, None):
            try:
                async with asyncio.timeout(self._seconds + size / _SLOWEST):
                    await obstore.put_async(self._uploads, name, content, mode="create", use_multipart=False)
                return
            except (BaseError, OSError) as error:
                failure = BlobsUnavailableError(f"the blob {name}: {reason(error)}")
                if isinstance(error, AlreadyExistsError | PreconditionError) and not may_be_ours:
                    # S3 answers so also while another PUT of the name is under way, which may fail.
                    if "ConditionalRequestConflict" not in str(error):
                        raise BlobExistsError(f"there is a blob {name} already") from None
                elif is_final(error):
                    raise failure from error
            may_be_ours = True
            try:
                await asyncio.to_thread(self._compare, name, content, size)
                return
            except NoSuchBlobError:
                pass
            except BlobsUnavailableError as error:
                failure = error
            if wait is None:
                raise failure
            await asyncio.sleep(wait)

    def _compare(self, name: str, content: bytes | memoryview, size: int) -> None:
        """Read a blob back and compare it with its content.

        Raises:
            NoSuchBlobError: There is none.
            BlobExistsError: It has other content.
        """
        for begin, stored_size, part in self._parts(name):
            if stored_size != size or part != content[begin : begin + len(part)]:
                raise BlobExistsError(f"there is another blob {name} already")

    def _download(self, name: str, path: Path) -> str:
        digest = hashlib.sha256()
        with path.open("xb") as file:
            for _, _, part in self._parts(name):
                digest.update(part)
                file.write(part)
        return digest.hexdigest()

    def _parts(self, name: str) -> Generator[tuple[int, int, memoryview]]:
        """Yield the begin of each part of an object, the object's size, and the part."""
        with _store_errors(name):
            first = obstore.get(self._store, name, options={"range": (0, _PART)})
            size = first.meta["size"]
            part = memoryview(first.bytes())
        begin = 0
        while True:
            yield begin, size, part
            begin += len(part)
            if begin >= size:
                return
            with _store_errors(name):
                part = memoryview(obstore.get_range(self._store, name, start=begin, end=min(begin + _PART, size)))
            if not part:
                raise BlobsUnavailableError(f"the blob {name}: the store answers without content")


def _mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


@contextmanager
def _disk_errors(name: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise BlobsUnavailableError(f"the local copy of the blob {name}: {error.strerror}") from error


@contextmanager
def _store_errors(name: str) -> Generator[None]:
    try:
        yield
    except FileNotFoundError as error:
        if is_final(error):
            raise BlobsUnavailableError(f"the blob {name}: {reason(error)}") from error
        raise NoSuchBlobError(f"there is no blob {name}") from None
    except (BaseError, OSError) as error:
        raise BlobsUnavailableError(f"the blob {name}: {reason(error)}") from error
