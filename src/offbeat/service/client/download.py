"""The download of one version of the model: once, in as many pieces as the line allows."""

import re
from pathlib import Path

import httpx

from offbeat.service.client.connection import Connection
from offbeat.service.client.durable import put_in_place, read_json, write_json
from offbeat.service.client.refusal import ServiceError, UnreachableError
from offbeat.service.client.retry import Attempts

_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


def download(connection: Connection, version: int, folder: Path) -> Path:
    """Return the file with a version of the model, downloaded unless it is there; others are removed.

    What a broken download left behind is gone on with, by this process or the next.

    Raises:
        UnreachableError: No attempt got any further.
        ServiceError: The server refused, for instance since it no longer has that version.
    """
    path = folder / f"model-{version}.safetensors"
    if not path.exists():
        piece = _Piece(folder, version)
        attempts = Attempts(connection.backoff)
        while not piece.is_whole:
            size = piece.size
            try:
                piece.fetch(connection)
            except UnreachableError as error:
                if piece.size > size:
                    attempts.progressed()
                attempts.failed(error)
            except ServiceError as error:
                if error.status == 416:
                    piece.discard()
                elif not error.may_pass:
                    raise
                attempts.failed(error, error.retry_after or 0.0)
        put_in_place(piece.path, path)
    for other in folder.glob("model-*.safetensors"):
        if other != path:
            other.unlink()
    return path


class _Piece:
    """The first bytes of a version, and a note of what they are the first bytes of."""

    def __init__(self, folder: Path, version: int) -> None:
        self.path = folder / "download.partial"
        self._note = folder / "download.json"
        self._version = version
        note = read_json(self._note) or {}
        self._etag: str | None = note.get("etag")
        self._total: int | None = note.get("total")
        if note.get("version") != version:
            self.discard()

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def is_whole(self) -> bool:
        return self._total is not None and self.size == self._total

    def discard(self) -> None:
        self._etag = self._total = None
        self.path.unlink(missing_ok=True)

    def fetch(self, connection: Connection) -> None:
        """Make one attempt to get the rest."""
        headers = {"Accept-Encoding": "identity"}  # a range of compressed bytes would be of no use
        if self._etag and self.size:
            headers |= {"Range": f"bytes={self.size}-", "If-Range": self._etag}
        with connection.stream("GET", f"/v1/models/{self._version}", headers=headers) as response:
            self._begin(response)
            with self.path.open("ab") as file:
                for block in response.iter_raw():
                    file.write(block)
        if not self.is_whole:
            self.discard()
            raise UnreachableError(f"the download of version {self._version} has another size than was announced")

    def _begin(self, response: httpx.Response) -> None:
        """Make the file end where the answer begins."""
        if response.status_code == 206:
            match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if match and (int(match[1]), int(match[2])) == (self.size, self._total):
                return
            self.discard()
            raise UnreachableError(f"the server sent another part of version {self._version} than was asked for")
        # The whole of it: also if what is there turns out to be of something else.
        self.discard()
        try:
            self._total = int(response.headers["Content-Length"])
        except (KeyError, ValueError):
            raise UnreachableError(f"the server does not say how large version {self._version} is") from None
        etag = response.headers.get("ETag", "")
        self._etag = etag if etag.startswith('"') else None  # a weak one says nothing about bytes
        write_json(self._note, {"version": self._version, "etag": self._etag, "total": self._total})
