"""CIFAR-10: 60,000 colour pictures, 32 × 32 pixels, ten classes.

Krizhevsky, "Learning multiple layers of features from tiny images", technical report, 2009.

It is read from the official archive (``cifar-10-binary.tar.gz``, which is what is downloaded), or from one of JPEG
files (``cifar10-jpeg.tar.gz``), a tenth of the size. JPEG loses some detail, so the numbers of the two differ a little.
Taking the pictures out of an archive takes seconds, so they are kept in the cache, under the archive's SHA-256.
"""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from offbeat.data.builtin.cifar10_archives import BATCHES, CLASSES, PIXELS, read_binary, read_jpegs
from offbeat.data.builtin.standardise import standardise
from offbeat.data.dataset import Dataset
from offbeat.data.source_files import Source, cache_folder
from offbeat.errors import OffbeatError

SOURCE = Source(
    name="cifar10",
    title="CIFAR-10",
    base_url="https://www.cs.toronto.edu/~kriz/",
    files={"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
    stand_in="cifar10-jpeg.tar.gz",
)
BATCH = 10_000

# Of the training pictures' red, green and blue pixels, scaled to [0, 1].
_MEAN = (0.4914, 0.4822, 0.4465)
_DEVIATION = (0.2470, 0.2435, 0.2616)


def load() -> Dataset:
    """Return CIFAR-10: 50,000 examples to train on and 10,000 to test, inputs ``(n, 3, 32, 32)``.

    The inputs are scaled to [0, 1], then standardised with the mean and the deviation of each channel of the
    training pictures. The examples of the official archive come in its order, those of the JPEG archive in that of
    ``read_jpegs``; either mixes the classes.

    Raises:
        OffbeatError: The archive is broken or another one, or ``$OFFBEAT_DATA`` is no folder.
        MissingDataError: The archive is nowhere, nor can it be downloaded.
    """
    (path,) = SOURCE.get()
    records = _records(path)
    labels = records[:, 0].astype(np.int64)
    pictures = records[:, 1:].reshape(-1, 3, 32, 32)
    train = (BATCHES - 1) * BATCH
    return Dataset(
        name="cifar10",
        train_inputs=standardise(pictures[:train], _MEAN, _DEVIATION),
        train_labels=labels[:train],
        test_inputs=standardise(pictures[train:], _MEAN, _DEVIATION),
        test_labels=labels[train:],
        classes=len(CLASSES),
    )


def _records(path: Path) -> NDArray[np.uint8]:
    """Return the archive's records ``(6 × batch, 3073)``, from the cache if they are there."""
    try:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise OffbeatError(f"cannot read {path}: {error.strerror}; remove or replace it") from error
    official = SOURCE.files.get(path.name)
    if official and sha256 != official:
        raise OffbeatError(f"{path} is not the official archive: its SHA-256 is another one; remove or replace it")

    # Whoever changes the order of the records changes this name too.
    kept = cache_folder() / SOURCE.name / f"records-{sha256}.npy"
    with suppress(OSError, ValueError):  # It is not there, or broken.
        records = np.lib.format.open_memmap(kept, mode="r")  # It never unpickles.
        if (records.shape, records.dtype) == ((BATCHES * BATCH, 1 + PIXELS), np.uint8):
            return records
    records = read_binary(path, BATCH) if official else read_jpegs(path, BATCH)
    with suppress(OSError):  # A cache that cannot be written only makes the next time slower.
        _write(kept, records)
    return records


def _write(path: Path, records: NDArray[np.uint8]) -> None:
    """Write an array to a file that appears only when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            np.save(file, records, allow_pickle=False)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
