"""The download of a version of the model, in pieces if the connection breaks."""

from http import HTTPStatus
from pathlib import Path
from typing import Protocol

import httpx
from offbeat_client.http.connection import Attempts, Connection
from offbeat_core.errors import GiveUpError
from offbeat_core.files import replace_durably, sha256
from offbeat_core.http.service_errors import ServiceError, UnreachableError

MOST_HEADER_BYTES = 2**24
"""The largest header of a model's file: names and shapes of some 80,000 tensors."""


class Wanted(Protocol):
    """A version to download: that of a visit, or of an evaluation."""

    @property
    def version(self) -> int:
        """The version."""
        ...

    @property
    def model_sha256(self) -> str:
        """The SHA-256 of its file."""
        ...

    @property
    def length(self) -> int:
        """The number of parameters d."""
        ...


def download(connection: Connection, wanted: Wanted, folder: Path) -> Path:
    """Return the file with a version of the model; download it unless it exists.

    Its SHA-256 is the one that the server named. A version's number is not enough, since a server that was restored
    from a backup makes other versions of the same numbers. The files of other versions are removed. A broken download
    is resumed, by this process or the next.

    Raises:
        GiveUpError: The server sends another file, or one that is larger than d parameters, the vector beside them and
            a header.
    """
    path = folder / f"model-{wanted.model_sha256}.safetensors"
    partial = folder / f"download-{wanted.model_sha256}.partial"
    for other in (*folder.glob("model-*"), *folder.glob("download*")):
        if other not in (path, partial):
            other.unlink()
    if not path.exists() or sha256(path) != wanted.model_sha256:
        _fetch(connection, wanted, partial)
        if sha256(partial) != wanted.model_sha256:
            partial.unlink()
            raise GiveUpError(f"the server sent another model than it had named for version {wanted.version}")
        replace_durably(partial, path)
    return path


def _fetch(connection: Connection, wanted: Wanted, partial: Path) -> None:
    """Download a file, or the rest of it, in as many attempts as it takes."""
    attempts = Attempts(connection.backoff)
    while True:
        size = _size(partial)
        try:
            return _fetch_rest(connection, wanted, partial)
        except UnreachableError as error:
            if _size(partial) > size:
                attempts.progressed()
            attempts.failed(error)
        except ServiceError as error:
            if error.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                partial.unlink(missing_ok=True)
            elif not error.may_pass:
                raise
            attempts.failed(error, error.retry_after or 0.0)


def _fetch_rest(connection: Connection, wanted: Wanted, partial: Path) -> None:
    """Make one attempt to download the rest of a file."""
    size, etag = _size(partial), f'"{wanted.model_sha256}"'
    part = {"Range": f"bytes={size}-"} if size else {}
    headers = {**part, "Offbeat-Supports": ", ".join(filter(None, (connection.supports, "redirects")))}
    if size:
        headers["If-Range"] = etag
    with connection.stream("GET", f"/v1/models/{wanted.version}", headers=headers, redirect=etag) as response:
        if response.status_code != HTTPStatus.TEMPORARY_REDIRECT:
            _receive(response, wanted, partial, size)
            return
        url = response.headers.get("Location", "")
    # Without If-Range: what the store has under a name never changes, and has an ETag of the store's.
    with connection.stream_elsewhere(url, part) as response:
        _receive(response, wanted, partial, size)


def _receive(response: httpx.Response, wanted: Wanted, partial: Path, size: int) -> None:
    """Write a file, or what follows its first ``size`` bytes."""
    if response.status_code != HTTPStatus.PARTIAL_CONTENT:
        size = 0
    elif not response.headers.get("Content-Range", "").startswith(f"bytes {size}-"):
        partial.unlink()
        raise UnreachableError(f"the server sent another part of version {wanted.version} than requested")
    _check_size(wanted, size + int(response.headers.get("Content-Length", 0)))
    with partial.open("ab" if size else "wb") as file:
        for block in response.iter_raw():
            _check_size(wanted, size := size + len(block))
            file.write(block)


def _check_size(wanted: Wanted, size: int) -> None:
    most = 8 * wanted.length + MOST_HEADER_BYTES  # there may be a vector beside the model
    if size > most:
        raise GiveUpError(
            f"the server sends {size} bytes or more for version {wanted.version}, but its {wanted.length} parameters "
            f"need {most} at most"
        )


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
