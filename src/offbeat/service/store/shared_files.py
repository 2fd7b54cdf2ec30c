"""Large files that the servers of a run share.

They are updates, opened sums, and checkpoints with their models.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

from offbeat_core.digests import digest_of_file, kind_of
from offbeat_core.errors import OffbeatError
from offbeat_core.files import sha256 as digest_of

from offbeat.service.blobs.blobs import (
    BlobExistsError,
    Blobs,
    BlobsUnavailableError,
    BrokenBlobError,
    NoSuchBlobError,
    checked_blob,
)
from offbeat.service.log.log import Change
from offbeat.service.store.disk import UnreachableFilesError

_URL_SECONDS = 3600

OWNER = "checkpoint"
"""The owner of the log's rows that name checkpoints."""


class SharedFiles:
    """Copies of a server's files in a store of blobs, for other servers.

    All methods raise ``UnreachableFilesError`` if the store cannot be reached now.

    Args:
        blobs: The store.
        run: The id of the run, with which all names begin.
        folder: The server's own folder.
    """

    def __init__(self, blobs: Blobs, run: str, folder: Path) -> None:
        self.blobs = blobs
        self._run = run
        self._folder = folder

    async def upload(self, path: Path, name: str) -> None:
        """Store a copy of a file; return once it is durable.

        A name stands for one content.
        """
        copy = self._folder / "partial" / f".copy-{token_hex(8)}"
        await asyncio.to_thread(_link, path, copy)
        try:
            with _errors(self.blobs):
                await self.blobs.create(self._name(name), copy)
        except BlobExistsError:  # another server has made it, or this one before a kill
            pass
        finally:
            copy.unlink(missing_ok=True)
        self.blobs.forget(self._name(name))

    def download(self, name: str, digest: str, path: Path) -> None:
        """Get a file, in a thread, unless it is there.

        One that a loss of power has torn is replaced.

        Raises:
            OffbeatError: It was deleted, since a later checkpoint covers it, or is broken.
        """
        if path.exists() and digest_of_file(path, kind_of(digest)) == digest:
            return
        copy = self._folder / "partial" / f".copy-{token_hex(8)}"
        with _errors(self.blobs), checked_blob(self.blobs, self._name(name), digest) as file:
            _link(file, copy)
        copy.replace(path)
        self.blobs.forget(self._name(name))

    def model(self, version: int, sha256: str) -> Path:
        """Return a copy of a version's file, in a thread.

        It stays for 10 seconds at least.

        Raises:
            FileNotFoundError: The version is no longer kept.
            UnreachableFilesError: Its file cannot be read now, or is broken.
        """
        name = self._name(model_name(version, sha256))
        try:
            return self.blobs.fetch(name, sha256)
        except NoSuchBlobError:
            raise FileNotFoundError(name) from None
        except (BlobsUnavailableError, BrokenBlobError) as error:
            raise UnreachableFilesError(f"{self.blobs}: {error}") from error

    async def model_url(self, version: int, sha256: str) -> str | None:
        """Return a URL at which anybody can read a version for an hour.

        It is None if the store has no such URLs.
        """
        with _errors(self.blobs):
            return await self.blobs.url(self._name(model_name(version, sha256)), _URL_SECONDS)

    async def names(self) -> AsyncIterator[str]:
        """Yield the names of all files of the run."""
        with _errors(self.blobs):
            async for name in self.blobs.names(self._run):
                yield name.removeprefix(f"{self._run}/")

    async def delete(self, names: Iterable[str]) -> None:
        """Delete files that no server needs."""
        for name in names:
            with _errors(self.blobs):
                await self.blobs.delete(self._name(name))

    async def upload_checkpoint(self, number: int, path: Path, models: Mapping[int, tuple[Path, str]]) -> Change:
        """Store a checkpoint and its models; return the row that makes it known.

        ``models`` are files with their SHA-256, by version.
        """
        digest = await asyncio.to_thread(digest_of, path)
        values: dict[str, Any] = {"number": number, "file": f"checkpoints/{number}-{digest[:16]}", "sha256": digest}
        values["models"] = {str(version): [model_name(version, one), one] for version, (_, one) in models.items()}
        for version, (model, one) in models.items():
            await self.upload(model, model_name(version, one))
        await self.upload(path, values["file"])
        return Change(OWNER, "write", values)

    def download_model(self, version: int, digest: str) -> None:
        """Get a version into the server's folder; see ``download``."""
        self.download(model_name(version, digest), digest, model_path(self._folder / "models", version))

    def download_checkpoint(self, values: Mapping[str, Any]) -> None:
        """Get the checkpoint of a row, and its models, into the server's folder."""
        for version, (name, digest) in values["models"].items():
            self.download(name, digest, model_path(self._folder / "models", int(version)))
        path = self._folder / "checkpoints" / f"{values['number']}.safetensors"
        self.download(values["file"], values["sha256"], path)

    def _name(self, name: str) -> str:
        return f"{self._run}/{name}"


def files_of(values: Mapping[str, Any]) -> set[str]:
    """Return the names of the files of a checkpoint's row."""
    return {values["file"], *(name for name, _ in values["models"].values())}


@contextmanager
def _errors(blobs: Blobs) -> Generator[None]:
    try:
        yield
    except BlobsUnavailableError as error:
        raise UnreachableFilesError(f"{blobs}: {error}") from error
    except (NoSuchBlobError, BrokenBlobError) as error:
        raise OffbeatError(f"cannot follow the run's log: {error}; start this server again") from error


def model_path(folder: Path, version: int) -> Path:
    """Return the file of a published version in a folder."""
    return folder / f"{version}.safetensors"


def model_name(version: int, digest: str) -> str:
    """Return the name of a version's file."""
    return f"models/{version}-{digest[:16]}"


def _link(source: Path, target: Path) -> None:
    """Give a file a second name; copy it if that is on another file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
