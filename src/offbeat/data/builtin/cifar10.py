"""CIFAR-10: 60,000 colour images, 32 × 32 pixels, ten classes.

Krizhevsky, "Learning multiple layers of features from tiny images", technical report, 2009.

It is read from the official archive, ``cifar-10-binary.tar.gz``, which can be downloaded, or from an archive of JPEG
files, ``cifar10-jpeg.tar.gz``, a tenth of the size. JPEG loses some detail, so results of the two differ a little.
Reading an archive takes seconds, so its images are kept in the cache, under the archive's SHA-256.

Both archives give records ``(6 × batch, 3073)`` of bytes: a label, then the red, green and blue planes of 32 × 32
pixels; five batches for training, one for testing. Archives are not trusted: each expected member must occur once and
within its size, and little else may be in the archive. None is unpacked to disk.
"""

import hashlib
import io
import os
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from gzip import GzipFile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.data.builtin.images import standardise
from offbeat.data.dataset import Dataset
from offbeat.data.source_files import Source, cache_folder

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


SOURCE = Source(
    name="cifar10",
    title="CIFAR-10",
    base_url="https://www.cs.toronto.edu/~kriz/",
    files={"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
    alternative="cifar10-jpeg.tar.gz",
)
BATCH = 10_000

# Of the training images' red, green and blue pixels, scaled to [0, 1].
_MEAN = (0.4914, 0.4822, 0.4465)
_DEVIATION = (0.2470, 0.2435, 0.2616)


def load() -> Dataset:
    """Return CIFAR-10: 50,000 training and 10,000 test images ``(n, 3, 32, 32)``.

    The inputs are standardised with the mean and deviation of each channel of the training images. The examples of the
    official archive keep its order, those of the JPEG archive have the order of ``read_jpegs``; both mix the classes.

    Raises:
        OffbeatError: The archive is broken or a different one, or ``$OFFBEAT_DATA`` is not a folder.
        MissingDataError: The archive is not found and cannot be downloaded.
    """
    (path,) = SOURCE.get()
    records = _load_records(path)
    labels = records[:, 0].astype(np.int64)
    images = records[:, 1:].reshape(-1, 3, 32, 32)
    train = (BATCHES - 1) * BATCH
    return Dataset(
        name="cifar10",
        train_inputs=standardise(images[:train], _MEAN, _DEVIATION),
        train_labels=labels[:train],
        test_inputs=standardise(images[train:], _MEAN, _DEVIATION),
        test_labels=labels[train:],
        classes=len(CLASSES),
    )


def _load_records(path: Path) -> NDArray[np.uint8]:
    """Return the archive's records ``(6 × batch, 3073)``, cached ones if possible."""
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise OffbeatError(f"cannot read {path}: {error.strerror}; remove or replace it") from error
    official = SOURCE.files.get(path.name)
    if official and sha256 != official:
        raise OffbeatError(f"{path} is not the official archive: its SHA-256 differs; remove or replace it")

    # A change of the records' order must change this name too.
    cached = cache_folder() / SOURCE.name / f"records-{sha256}.npy"
    with suppress(OSError, ValueError):  # It does not exist, or is broken.
        records = np.lib.format.open_memmap(cached, mode="r")  # This never unpickles.
        if (records.shape, records.dtype) == ((BATCHES * BATCH, 1 + PIXELS), np.uint8):
            return records
    records = read_binary(path, BATCH) if official else read_jpegs(path, BATCH)
    with suppress(OSError):  # A cache that cannot be written only makes the next load slower.
        _write(cached, records)
    return records


def _write(path: Path, records: NDArray[np.uint8]) -> None:
    """Write an array to a file that appears only when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.save(file, records, allow_pickle=False)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
