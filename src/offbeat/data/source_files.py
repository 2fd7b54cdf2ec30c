"""The files of a data set: in a folder, the cache or Debian, or downloaded."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from offbeat_core.errors import OffbeatError

from offbeat.data.dataset import MissingDataError

_DEADLINE_SECONDS = 8.0
_CONNECT_SECONDS = 5.0
_SILENCE_SECONDS = 15.0
_RETRIES = 2


class DownloadError(Exception):
    """A failed download; the message is a clause that names the file and the reason."""


def download(base_url: str, sha256: Mapping[str, str], folder: Path) -> None:
    """Download the files that the folder lacks, with a progress bar for each.

    A file appears in the folder, which is created if needed, only when it is complete and its SHA-256 is right. The
    first file that fails ends the download. ``base_url`` ends with a slash; ``sha256`` has hexadecimal hashes by name.

    Raises:
        DownloadError: The server does not answer within seconds, a connection breaks more than twice, a file's hash is
            wrong, or the folder cannot be written.
    """
    # Imported late: in a notebook its progress bars print a warning on import.
    import pooch

    fetcher = pooch.create(folder, base_url, registry=dict(sha256), retry_if_failed=_RETRIES)
    http = pooch.HTTPDownloader(progressbar=True, chunk_size=1 << 16, timeout=(_CONNECT_SECONDS, _SILENCE_SECONDS))
    first = base_url + next(iter(sha256))
    if not _is_reachable(first):
        raise DownloadError(f"{first} cannot be reached")
    # pooch logs every file and retry, and prints its log by default.
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        for name in sha256:
            try:
                # pooch's type of downloaders does not fit its own downloaders.
                fetcher.fetch(name, downloader=http)  # pyright: ignore[reportArgumentType]
            except OSError as error:  # The exceptions of requests are OSErrors too, without strerror.
                reason = error.strerror or type(error).__name__
                raise DownloadError(f"{base_url}{name} to {folder}: {reason}") from error
            except ValueError as error:
                raise DownloadError(f"{base_url}{name} has a wrong SHA-256") from error
    finally:
        logger.setLevel(level)


def _is_reachable(url: str) -> bool:
    """Return whether the server confirms before the deadline that it has the file.

    The request runs in a thread because nothing else bounds its time: a name look-up has no timeout, and the timeout
    for connecting starts again for each address of the server.
    """
    import pooch

    answers: SimpleQueue[bool] = SimpleQueue()

    def ask() -> None:
        try:
            http = pooch.HTTPDownloader(timeout=_CONNECT_SECONDS)
            answers.put(bool(http(url, None, None, check_only=True)))
        except (OSError, ValueError):
            answers.put(False)

    Thread(target=ask, daemon=True).start()
    try:
        return answers.get(timeout=_DEADLINE_SECONDS)
    except Empty:
        return False


def data_folder() -> Path | None:
    """Return the folder that ``$OFFBEAT_DATA`` names; None if it is unset or empty."""
    value = os.environ.get("OFFBEAT_DATA")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise OffbeatError(f"OFFBEAT_DATA is {value!r}, which is not a folder: set it to one, or unset it")
    return folder


def cache_folder() -> Path:
    """Return ``$OFFBEAT_CACHE``, or the user's folder for caches; it may not exist."""
    # Imported late: in a notebook its progress bars print a warning on import.
    import pooch

    return Path(os.environ.get("OFFBEAT_CACHE") or pooch.os_cache("offbeat")).expanduser()


@dataclass(frozen=True)
class Source:
    """The files of one data set.

    They are searched for in ``$OFFBEAT_DATA/NAME``, in ``$OFFBEAT_DATA``, in ``NAME`` in the cache and in the folder of
    Debian's package, and otherwise downloaded into the cache.

    Attributes:
        name: The data set's name in a configuration, and of its folders.
        title: Its name in messages.
        base_url: Address of the published files, with a slash at the end.
        files: Hexadecimal SHA-256 of each published file, by name.
        alternative: A file that replaces all of them if it is found. It is not downloaded.
        debian_folder: Folder of the Debian package ``dataset-NAME``, if there is one.
        instructions: How to get files that are not downloaded, since they have no published checksum: words between
            "… is not here: " and "and set OFFBEAT_DATA to …".
    """

    name: str
    title: str
    base_url: str
    files: Mapping[str, str]
    alternative: str | None = None
    debian_folder: Path | None = None
    instructions: str | None = None

    def find(self) -> tuple[Path, ...] | None:
        """Return the paths of the files in order, or of the alternative; else None.

        Raises:
            OffbeatError: ``$OFFBEAT_DATA`` is not a folder, or holds only some of the files.
        """
        root = data_folder()
        for folder in (root / self.name, root) if root else ():
            if paths := self._find_in(folder):
                return paths
            missing = [name for name in self.files if not (folder / name).is_file()]
            # A user who put some of the files there wants to know why they are not used.
            if len(missing) < len(self.files):
                raise OffbeatError(f"{folder} holds only part of {self.title}: add {', '.join(missing)}")
        for folder in (cache_folder() / self.name, self.debian_folder):
            if folder and (paths := self._find_in(folder)):
                return paths
        return None

    def get(self) -> tuple[Path, ...]:
        """Return the paths that ``find`` returns, after a download if needed.

        Raises:
            OffbeatError: As for ``find``.
            MissingDataError: The files are not found and cannot be downloaded.
        """
        if paths := self.find():
            return paths
        if self.instructions is not None:
            raise MissingDataError(
                f"{self.title} is not here: {self.instructions} and set OFFBEAT_DATA to the folder with "
                f"{'it' if len(self.files) == 1 else 'them'}"
            )
        cache = cache_folder() / self.name
        try:
            download(self.base_url, self.files, cache)
        except DownloadError as error:
            folder = os.environ.get("OFFBEAT_DATA")
            wanted = " and ".join(self.files) + (f", or {self.alternative}" if self.alternative else "")
            raise MissingDataError(
                f"{self.title} is not here{f', nor in OFFBEAT_DATA={folder}' if folder else ''}, and could not be "
                f"downloaded ({error}): set OFFBEAT_DATA to a folder with {wanted}"
                f"{f', or apt install dataset-{self.name}' if self.debian_folder else ''}, or get online"
            ) from error
        return tuple(cache / name for name in self.files)

    def _find_in(self, folder: Path) -> tuple[Path, ...] | None:
        for names in (tuple(self.files), (self.alternative,)):
            paths = tuple(folder / name for name in names if name)
            if paths and all(path.is_file() for path in paths):
                return paths
        return None
