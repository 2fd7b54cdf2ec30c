"""CIFAR-10: 60,000 colour images, 32 × 32 pixels, ten classes.

Krizhevsky, "Learning multiple layers of features from tiny images", technical report, 2009.

It is read from the official archive, ``cifar-10-binary.tar.gz``, which can be downloaded, or from an archive of JPEG
files, ``cifar10-jpeg.tar.gz``, a tenth of the size. JPEG loses some detail, so results of the two differ a little.
Reading an archive takes seconds, so its images are kept in the cache, under the archive's SHA-256.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.data.builtin.cifar10_archives import BATCHES, CLASSES, PIXELS, read_binary, read_jpegs
from offbeat.data.builtin.images import standardise
from offbeat.data.dataset import Dataset
from offbeat.data.source_files import Source, cache_folder

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
