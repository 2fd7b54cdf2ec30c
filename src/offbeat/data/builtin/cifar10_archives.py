"""CIFAR-10's images, read from an archive without unpacking it to disk.

Both archives give records ``(6 × batch, 3073)`` of bytes: a label, then the red, green and blue planes of 32 × 32
pixels; five batches for training, one for testing. Archives are not trusted: each expected member must occur once and
within its size, and little else may be in the archive.
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
from offbeat_core.errors import OffbeatError

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PIXELS = 3 * 32 * 32
BATCHES = 6
_RECORD = 1 + PIXELS
_LARGEST_JPEG = 1 << 13  # bytes, more than twice the pixels themselves
_OVERHEAD = 1 << 11  # bytes that tar may add to each member
_EXTRA_MEMBERS = 1_000  # allowed besides the expected members, for instance folders
_EXTRA_BYTES = 1 << 20
_REMEDY = "remove or replace the archive"


def read_binary(path: Path, batch: int) -> NDArray[np.uint8]:
    """Return the records of the official "CIFAR-10 binary version", in its order.

    ``batch`` is the number of records in each of the six files.
    """
    folder = "cifar-10-batches-bin"
    names = [f"{folder}/data_batch_{number}.bin" for number in range(1, BATCHES)] + [f"{folder}/test_batch.bin"]
    records = np.empty((BATCHES * batch, _RECORD), np.uint8)

    def store(index: int, content: bytes) -> str | None:
        if len(content) != batch * _RECORD:
            return f"holds {len(content):,} bytes, not {batch * _RECORD:,}"
        records[index * batch : (index + 1) * batch] = np.frombuffer(content, np.uint8).reshape(batch, _RECORD)
        return None

    ignored = {f"{folder}/batches.meta.txt", f"{folder}/readme.html"}
    _read(path, {name: index for index, name in enumerate(names)}, batch * _RECORD, store, ignored)
    if records[:, 0].max() >= len(CLASSES):
        raise OffbeatError(f"{path}: a label is {records[:, 0].max()}, not 0 … 9; {_REMEDY}")
    return records


def read_jpegs(path: Path, batch: int) -> NDArray[np.uint8]:
    """Return the records of an archive of JPEG files, classes mixed.

    The files are ``train/CLASS/NNNN.jpg`` and ``test/CLASS/NNNN.jpg``, numbered from 0000. The archive has them class
    by class; to mix them, the records of each part are sorted by the SHA-256 of their names. ``batch`` is a sixth
    of the number of images; each class has a tenth of each batch.
    """
    from PIL import Image  # Imported late, since few runs need it.

    indices: dict[str, int] = {}
    for part, batches in (("train", BATCHES - 1), ("test", 1)):
        numbers = range(batches * batch // len(CLASSES))
        names = [f"{part}/{name}/{number:04}.jpg" for name in CLASSES for number in numbers]
        for name in sorted(names, key=lambda name: hashlib.sha256(name.encode()).digest()):
            indices[name] = len(indices)
    labels = {index: CLASSES.index(name.split("/")[1]) for name, index in indices.items()}
    records = np.empty((len(indices), _RECORD), np.uint8)

    def store(index: int, content: bytes) -> str | None:
        try:
            with Image.open(io.BytesIO(content), formats=["JPEG"]) as image:
                if image.size != (32, 32):  # Checked before anything is decoded.
                    return f"is an image of {image.width} × {image.height} pixels, not 32 × 32"
                pixels = np.asarray(image.convert("RGB"))
        except Exception:  # Pillow's parsers raise exceptions of any type.
            return "is not a JPEG image"
        records[index, 0] = labels[index]
        records[index, 1:] = pixels.transpose(2, 0, 1).reshape(-1)
        return None

    _read(path, indices, _LARGEST_JPEG, store)
    return records


def _read(
    path: Path,
    indices: Mapping[str, int],
    largest: int,
    store: Callable[[int, bytes], str | None],
    ignored: frozenset[str] | set[str] = frozenset(),
) -> None:
    """Pass the index and the content of each expected member to ``store``.

    ``store`` returns the problem or None. Folders and members in ``ignored`` are skipped.
    """
    missing = set(indices)
    limit = len(indices) * (largest + _OVERHEAD) + _EXTRA_BYTES
    try:
        for count, (member, read_content) in enumerate(_iterate(path, limit)):
            if count >= len(indices) + _EXTRA_MEMBERS:
                raise OffbeatError(f"{path} holds too many members; {_REMEDY}")
            if member.isdir() or member.name in ignored:
                continue
            if member.name not in indices or not member.isreg():
                raise OffbeatError(f"{path} holds {member.name[:100]!r}, which does not belong there; {_REMEDY}")
            if member.name not in missing:
                raise OffbeatError(f"{path} holds {member.name} twice; {_REMEDY}")
            if member.size > largest:
                raise OffbeatError(f"{path}: {member.name} holds {member.size:,} bytes, too many; {_REMEDY}")
            if problem := store(indices[member.name], read_content()):
                raise OffbeatError(f"{path}: {member.name} {problem}; {_REMEDY}")
            missing.remove(member.name)
    # The exceptions of the gzip and tar modules for broken files.
    except (OSError, EOFError, zlib.error, tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise OffbeatError(f"cannot read {path}: {reason}; {_REMEDY}") from error
    if missing:
        raise OffbeatError(f"{path} lacks {len(missing):,} of its files, for instance {min(missing)}; {_REMEDY}")


def _iterate(path: Path, limit: int) -> Iterator[tuple[tarfile.TarInfo, Callable[[], bytes]]]:
    """Yield each member and a function that reads its content."""
    with path.open("rb") as file, GzipFile(fileobj=file) as unzipped:
        stream: Any = _BoundedStream(unzipped, limit)  # tarfile only calls its read method.
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:

                def read_content(member: tarfile.TarInfo = member) -> bytes:
                    extracted = archive.extractfile(member)
                    return extracted.read() if extracted else b""

                yield member, read_content
            # The tar archive ends before gzip's checksum.
            while stream.read(1 << 16):
                pass


class _BoundedStream:
    """A stream that raises ``OSError`` beyond ``limit`` bytes."""

    def __init__(self, file: GzipFile, limit: int) -> None:
        self._file = file
        self._left = limit

    def read(self, size: int) -> bytes:
        content = self._file.read(size)
        self._left -= len(content)
        if self._left < 0:
            raise OSError("it holds far more than it should")
        return content
