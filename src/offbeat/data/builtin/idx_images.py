"""What MNIST and its relatives share: two idx files of grey pictures, two of their labels."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from offbeat.data.builtin.idx import read_idx
from offbeat.data.builtin.standardise import standardise
from offbeat.data.dataset import Dataset
from offbeat.data.source_files import Source


class IdxFile(NamedTuple):
    """What is known of a file beforehand."""

    name: str
    shape: tuple[int, ...]
    published_sha256: str  # of the compressed file
    content_sha256: str


def load_images(source: Source, files: Sequence[IdxFile], mean: float, deviation: float) -> Dataset:
    """Return a data set of ten classes, inputs ``(n, 1, height, width)`` standardised.

    Args:
        source: Where the files are.
        files: Training pictures, training labels, test pictures, test labels.
        mean: The mean of the training pixels, scaled to [0, 1].
        deviation: Their standard deviation.

    Raises:
        OffbeatError: A file is broken or another data set's, or ``$OFFBEAT_DATA`` is no folder or holds only part.
        MissingDataError: The files are nowhere, nor can they be downloaded.
    """
    train_images, train_labels, test_images, test_labels = (
        read_idx(path, file.shape, file.content_sha256) for path, file in zip(source.get(), files, strict=True)
    )
    return Dataset(
        name=source.name,
        train_inputs=standardise(train_images[:, np.newaxis], [mean], [deviation]),
        train_labels=train_labels.astype(np.int64),
        test_inputs=standardise(test_images[:, np.newaxis], [mean], [deviation]),
        test_labels=test_labels.astype(np.int64),
        classes=10,
    )
