"""A client's record of the shares that it has made for a run."""

from dataclasses import asdict, dataclass
from pathlib import Path

from offbeat_client.client_folder.json_file import read_json, write_json

_PATTERN = "private-*.json"


@dataclass(frozen=True, slots=True)
class PrivateRecord:
    """The last visit with a share, and the newest head and epoch seen.

    ``head`` is in hexadecimal digits; ``seed`` is the server's.
    """

    visit: int = -1
    start_version: int = -1
    head_number: int = -1
    head: str = ""
    epoch: int = -1
    seed: int | None = None


class PrivateRecordFile:
    """The record of the run with these terms, in a client's folder."""

    def __init__(self, folder: Path, terms_digest: bytes) -> None:
        self._path = folder / _PATTERN.replace("*", terms_digest.hex())

    def read(self) -> PrivateRecord:
        """Return the record; an empty one if there is none yet."""
        return read_json(self._path, PrivateRecord, "put it back, or have a new key enrolled in another folder") or (
            PrivateRecord()
        )

    def write(self, record: PrivateRecord) -> None:
        """Replace the record, on disk."""
        write_json(self._path, asdict(record))


def has_private_record(folder: Path) -> bool:
    """Return whether the folder's client has joined a run with terms."""
    return any(folder.glob(_PATTERN))
