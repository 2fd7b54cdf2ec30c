"""Downloading files of known SHA-256, quick to give up where there is no network."""

import logging
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

_DEADLINE_SECONDS = 8.0
_CONNECT_SECONDS = 5.0
_SILENCE_SECONDS = 15.0
_RETRIES = 2


class DownloadError(Exception):
    """A download failed; the message is a clause that says which and why."""


def download(base_url: str, sha256: Mapping[str, str], folder: Path) -> None:
    """Download what the folder does not hold yet, with a progress bar a file.

    A file appears in the folder only when it is complete and its SHA-256 is right. The first file that fails for
    good ends the download.

    Args:
        base_url: Where the files are, with a slash at the end.
        sha256: The files' names and hexadecimal hashes.
        folder: Where the files go; it is made if need be.

    Raises:
        DownloadError: No answer within seconds, a connection that breaks more than twice, a file that differs
            from the hash, or a folder that cannot be written.
    """
    # Only here, because in a notebook its progress bars complain as soon as they are imported.
    import pooch

    fetcher = pooch.create(folder, base_url, registry=dict(sha256), retry_if_failed=_RETRIES)
    http = pooch.HTTPDownloader(progressbar=True, chunk_size=1 << 16, timeout=(_CONNECT_SECONDS, _SILENCE_SECONDS))
    first = base_url + next(iter(sha256))
    if not _answers(first):
        raise DownloadError(f"{first} cannot be reached")
    # Pooch tells its log each file's and each retry's news, and prints the log by default.
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        for name in sha256:
            try:
                # Pooch's own type for downloaders does not fit pooch's own downloaders.
                fetcher.fetch(name, downloader=http)  # pyright: ignore[reportArgumentType]
            except OSError as error:  # The exceptions of requests are OSErrors too, without strerror.
                reason = error.strerror or type(error).__name__
                raise DownloadError(f"{base_url}{name} to {folder}: {reason}") from error
            except ValueError as error:
                raise DownloadError(f"{base_url}{name} has a wrong SHA-256") from error
    finally:
        logger.setLevel(level)


def _answers(url: str) -> bool:
    """Return whether the server has the file, as far as can be known before the deadline.

    The question goes through a thread because nothing else bounds its time: looking a name up has no timeout, and
    the one for connecting counts anew for each of the server's addresses.
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
