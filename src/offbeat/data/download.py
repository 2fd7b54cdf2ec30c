"""Downloads of files of known SHA-256, which fail quickly without network."""

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
