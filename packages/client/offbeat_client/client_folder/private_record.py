"""Records of a client with terms: its last share, and its models by version."""

import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from offbeat_core.errors import OffbeatError
from offbeat_core.files import append_durably, files_in, read_json, sync_file, write_json

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
    return bool(files_in(folder, _PATTERN))


_HEADER = re.compile(r"offbeat models of the terms ([0-9a-f]{64})")
_LINE = re.compile(r"(0|[1-9][0-9]{0,18}) ([0-9a-f]{64})")


class ModelList(NamedTuple):
    """The content of a file ``models-TERMS.txt``.

    ``digests`` are those of the models, in hexadecimal digits, by version, in rising order.
    """

    terms: str
    digests: dict[int, str]


class TrainedModels:
    """The file ``models-TERMS.txt`` in a client's folder.

    It has a line for each version of which a share was made. The line is on disk before the share is.
    """

    def __init__(self, folder: Path, terms_digest: bytes) -> None:
        self._path = folder / f"models-{terms_digest.hex()}.txt"
        self._terms = terms_digest.hex()
        self._digests: dict[int, str] = {}
        self._versions: dict[str, int] = {}
        if self._path.exists():
            _cut_torn_line(self._path)
            for version, digest in self._read().items():
                self._remember(version, digest)

    @property
    def latest(self) -> int:
        """The latest version; -1 if there is none."""
        return next(reversed(self._digests), -1)

    def version_of(self, digest: str) -> int | None:
        """Return the version with this model; None if there is none."""
        return self._versions.get(digest)

    def keep(self, version: int, digest: str) -> None:
        """Write a version to disk; nothing if it is the latest one."""
        if version == self.latest:
            return
        is_new = not self._path.exists() or not self._path.stat().st_size
        header = f"offbeat models of the terms {self._terms}\n" if is_new else ""
        append_durably(self._path, f"{header}{version} {digest}\n".encode("ascii"))
        self._remember(version, digest)

    def _read(self) -> dict[int, str]:
        if not self._path.stat().st_size:
            return {}
        try:
            return read_models(self._path).digests
        except OffbeatError as error:
            raise OffbeatError(f"{error}: put it back, or have a new key enrolled in another folder") from None

    def _remember(self, version: int, digest: str) -> None:
        self._digests[version] = digest
        self._versions[digest] = version


def read_models(path: Path) -> ModelList:
    """Return the content of a client's file, which is not trusted.

    The rest of a line that a kill has cut off is left out.
    """
    try:
        text, _, _ = path.read_bytes().decode("ascii", "replace").rpartition("\n")
    except OSError as error:
        raise OffbeatError(f"cannot read {path}: {error.strerror}") from None
    header, *lines = text.split("\n")
    if not (found := _HEADER.fullmatch(header)):
        raise OffbeatError(f"{path} is not a list of models: name the file models-….txt in a client's folder")
    digests: dict[int, str] = {}
    last = -1
    for number, line in enumerate(lines, 2):
        match = _LINE.fullmatch(line)
        if not match or int(match[1]) <= last:
            raise OffbeatError(f"{path} is damaged: line {number} is not a version after the last one and its digest")
        last = int(match[1])
        digests[last] = match[2]
    return ModelList(found[1], digests)


def compare_models(one: Path, two: Path) -> int:
    """Return how many versions are in both of two clients' files.

    Raises:
        OffbeatError: A file cannot be used, they have no version in common, or the clients got different models.
    """
    first, second = read_models(one), read_models(two)
    if first.terms != second.terms:
        raise OffbeatError(f"{one} and {two} are of different runs: their terms differ")
    common = first.digests.keys() & second.digests.keys()
    for version in sorted(common):
        if first.digests[version] != second.digests[version]:
            raise OffbeatError(
                f"the server gave different models as version {version}: {first.digests[version][:16]}… in {one}, "
                f"{second.digests[version][:16]}… in {two}"
            )
    versions = {digest: version for version, digest in first.digests.items()}
    for version, digest in second.digests.items():
        if versions.get(digest, version) != version:
            raise OffbeatError(
                f"the server gave one model as two versions: {versions[digest]} in {one}, {version} in {two}"
            )
    if not common:
        raise OffbeatError(f"{one} and {two} have no version in common: there is nothing to compare")
    return len(common)


def _cut_torn_line(path: Path) -> None:
    """Cut off the rest of a line whose writing a kill has ended."""
    content = path.read_bytes()
    size = content.rfind(b"\n") + 1
    if size < len(content):
        with path.open("rb+") as file:
            os.truncate(file.fileno(), size)
            sync_file(file.fileno())
