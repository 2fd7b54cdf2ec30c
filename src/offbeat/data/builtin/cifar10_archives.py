"""Reading CIFAR-10's pictures out of an archive, without writing any of it to disk.

Both archives give the same thing, records ``(6 × batch, 3073)`` of bytes: a label, then a picture's red, green and
blue plane of 32 × 32; five batches to train on, one to test. Nothing in an archive is taken on trust: it may hold the
expected members only, each once and none too big, and little beside them.
"""

import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from gzip import GzipFile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PIXELS = 3 * 32 * 32
BATCHES = 6
_RECORD = 1 + PIXELS
_LARGEST_JPEG = 1 << 13  # bytes, more than twice the pixels themselves
# What tar may spend on a member beside its content; how many members, and how many bytes, may be there beside those
# that are expected.
_OVERHEAD = 1 << 11
_MORE_MEMBERS = 1_000
_MORE_BYTES = 1 << 20
_MEND = "remove or replace the archive"


def read_binary(path: Path, batch: int) -> NDArray[np.uint8]:
    """Return the records of the official archive "CIFAR-10 binary version", in its order.

    Args:
        path: The gzipped tar archive.
        batch: How many records each of the six files holds.

    Raises:
        OffbeatError: It cannot be read, or is not as expected; the message names it.
    """
    folder = "cifar-10-batches-bin"
    names = [f"{folder}/data_batch_{number}.bin" for number in range(1, BATCHES)] + [f"{folder}/test_batch.bin"]
    records = np.empty((BATCHES * batch, _RECORD), np.uint8)

    def take(place: int, content: bytes) -> str | None:
        if len(content) != batch * _RECORD:
            return f"holds {len(content):,} bytes, not {batch * _RECORD:,}"
        records[place * batch : (place + 1) * batch] = np.frombuffer(content, np.uint8).reshape(batch, _RECORD)
        return None

    beside = {f"{folder}/batches.meta.txt", f"{folder}/readme.html"}
    _read(path, {name: place for place, name in enumerate(names)}, batch * _RECORD, take, beside)
    if records[:, 0].max() >= len(CLASSES):
        raise OffbeatError(f"{path}: a label is {records[:, 0].max()}, not 0 … 9; {_MEND}")
    return records


def read_jpegs(path: Path, batch: int) -> NDArray[np.uint8]:
    """Return the records of an archive of JPEG files, ``train/CLASS/NNNN.jpg`` and ``test/CLASS/NNNN.jpg``.

    The files of a class are numbered from 0000. They are in the archive class by class, in which order a batch
    would be of one class; so the records are in the order of the SHA-256 of their names (``train/cat/0042.jpg``),
    within each part: pseudo-random, but always the same.

    Args:
        path: The gzipped tar archive.
        batch: A sixth of the number of pictures; each class has a tenth of each batch.

    Raises:
        OffbeatError: It cannot be read, or is not as expected; the message names it.
    """
    from PIL import Image  # Only here, since few need it.

    places: dict[str, int] = {}
    for part, batches in (("train", BATCHES - 1), ("test", 1)):
        numbers = range(batches * batch // len(CLASSES))
        names = [f"{part}/{name}/{number:04}.jpg" for name in CLASSES for number in numbers]
        for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest()):
            places[name] = len(places)
    labels = {place: CLASSES.index(name.split("/")[1]) for name, place in places.items()}
    records = np.empty((len(places), _RECORD), np.uint8)

    def take(place: int, content: bytes) -> str | None:
        try:
            with Image.open(io.BytesIO(content), formats=["JPEG"]) as image:
                if image.size != (32, 32):  # Before anything is decoded.
                    return f"is a picture of {image.width} × {image.height} pixels, not 32 × 32"
                pixels = np.asarray(image.convert("RGB"))
        except Exception:  # Pillow lets through whatever its parsers stumble over.
            return "is no JPEG picture"
        records[place, 0] = labels[place]
        records[place, 1:] = pixels.transpose(2, 0, 1).reshape(-1)
        return None

    _read(path, places, _LARGEST_JPEG, take)
    return records


def _read(
    path: Path,
    places: Mapping[str, int],
    largest: int,
    take: Callable[[int, bytes], str | None],
    beside: frozenset[str] | set[str] = frozenset(),
) -> None:
    """Hand the place and the content of each expected member to ``take``, which says what is wrong with it, if so.

    Members in ``beside`` and folders are passed over.
    """
    missing = set(places)
    limit = len(places) * (largest + _OVERHEAD) + _MORE_BYTES
    try:
        for count, (member, content) in enumerate(_members(path, limit)):
            if count >= len(places) + _MORE_MEMBERS:
                raise OffbeatError(f"{path} holds too many members; {_MEND}")
            if member.isdir() or member.name in beside:
                continue
            if member.name not in places or not member.isreg():
                raise OffbeatError(f"{path} holds {member.name[:100]!r}, which does not belong there; {_MEND}")
            if member.name not in missing:
                raise OffbeatError(f"{path} holds {member.name} twice; {_MEND}")
            if member.size > largest:
                raise OffbeatError(f"{path}: {member.name} holds {member.size:,} bytes, too many; {_MEND}")
            if problem := take(places[member.name], content()):
                raise OffbeatError(f"{path}: {member.name} {problem}; {_MEND}")
            missing.remove(member.name)
    # What the modules for gzip and tar raise over broken files.
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise OffbeatError(f"cannot read {path}: {reason}; {_MEND}") from error
    if missing:
        raise OffbeatError(f"{path} lacks {len(missing):,} of its files, for instance {min(missing)}; {_MEND}")


def _members(path: Path, limit: int) -> Iterator[tuple[tarfile.TarInfo, Callable[[], bytes]]]:
    """Return each member and what reads its content; at most ``limit`` bytes are decompressed."""
    with path.open("rb") as file, GzipFile(fileobj=file) as unzipped:
        stream: Any = _Bounded(unzipped, limit)  # tarfile reads from it, and does nothing else with it.
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:

                def content(member: tarfile.TarInfo = member) -> bytes:
                    extracted = archive.extractfile(member)
                    return extracted.read() if extracted else b""

                yield member, content
            # tar ends before gzip does, whose checksum is at its end.
            while stream.read(1 << 16):
                pass


class _Bounded:
    """A file that cannot be read beyond ``limit`` bytes, however much it claims to hold."""

    def __init__(self, file: GzipFile, limit: int) -> None:
        self._file = file
        self._left = limit

    def read(self, size: int) -> bytes:
        content = self._file.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise OSError("it holds far more than it should")
        return content
