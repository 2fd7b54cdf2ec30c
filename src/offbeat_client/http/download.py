"""The download of a version of the model, in pieces if the connection breaks."""

import re
from pathlib import Path
from typing import Any

import httpx

from offbeat_client.client_folder.json_file import read_json, write_json
from offbeat_client.files import replace_durably
from offbeat_client.http.connection import Connection
from offbeat_client.http.refusal import ServiceError, UnreachableError
from offbeat_client.http.retry import Attempts

_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+)")


def download(connection: Connection, version: int, folder: Path) -> Path:
    """Return the file with a version of the model; download it unless it exists.

    The files of other versions are removed. A broken download is resumed, by this process or the next.
    """
    path = folder / f"model-{version}.safetensors"
    if not path.exists():
        piece = _Piece(folder, version)
        attempts = Attempts(connection.backoff)
        while not piece.is_complete:
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
        replace_durably(piece.path, path)
    for other in folder.glob("model-*.safetensors"):
        if other != path:
            other.unlink()
    return path


class _Piece:
    """The first bytes of a version, and a note that identifies the version."""

    def __init__(self, folder: Path, version: int) -> None:
        self.path = folder / "download.partial"
        self._note = folder / "download.json"
        self._version = version
        note = read_json(self._note, dict[str, Any]) or {}
        self._etag: str | None = note.get("etag")
        self._total: int | None = note.get("total")
        if note.get("version") != version:
            self.discard()

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def is_complete(self) -> bool:
        return self._total is not None and self.size == self._total

    def discard(self) -> None:
        self._etag = self._total = None
        self.path.unlink(missing_ok=True)

    def fetch(self, connection: Connection) -> None:
        """Make one attempt to download the rest."""
        headers = {"Accept-Encoding": "identity"}  # ranges of compressed bytes would be useless
        if self._etag and self.size:
            headers |= {"Range": f"bytes={self.size}-", "If-Range": self._etag}
        with connection.stream("GET", f"/v1/models/{self._version}", headers=headers) as response:
            self._begin(response)
            with self.path.open("ab") as file:
                for block in response.iter_raw():
                    file.write(block)
        if not self.is_complete:
            self.discard()
            raise UnreachableError(f"the download of version {self._version} has another size than announced")

    def _begin(self, response: httpx.Response) -> None:
        """Cut the file to where the answer begins."""
        if response.status_code == 206:
            match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
            if match and (int(match[1]), int(match[2])) == (self.size, self._total):
                return
            self.discard()
            raise UnreachableError(f"the server sent another part of version {self._version} than requested")
        # The complete file: also if the first bytes turn out to be of another one.
        self.discard()
        try:
            self._total = int(response.headers["Content-Length"])
        except (KeyError, ValueError):
            raise UnreachableError(f"the server does not say how large version {self._version} is") from None
        etag = response.headers.get("ETag", "")
        self._etag = etag if etag.startswith('"') else None  # a weak one says nothing about bytes
        write_json(self._note, {"version": self._version, "etag": self._etag, "total": self._total})
