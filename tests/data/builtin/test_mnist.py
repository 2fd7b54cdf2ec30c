import gzip
import hashlib
import struct

import numpy as np
import pytest

from offbeat.data.builtin.mnist import FASHION_MNIST, MNIST

FILES = [
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
]


@pytest.mark.parametrize(
    ("idx_dataset", "first_labels", "train_counts", "test_counts"),
    [
        # MNIST's first digits are those of every tutorial.
        (
            MNIST,
            [5, 0, 4, 1, 9, 2, 1, 3],
            [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
            [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
        ),
        (FASHION_MNIST, [9, 0, 0, 3, 0, 2, 7, 2], [6_000] * 10, [1_000] * 10),
    ],
    ids=["mnist", "fashion-mnist"],
)
def test_the_real_files(real_data, idx_dataset, first_labels, train_counts, test_counts):
    real_data(idx_dataset.source.name, *FILES)
    dataset = idx_dataset.load()
    assert dataset.train_inputs.shape == (60_000, 1, 28, 28)
    assert dataset.test_inputs.shape == (10_000, 1, 28, 28)
    assert dataset.train_labels[:8].tolist() == first_labels
    assert np.bincount(dataset.train_labels).tolist() == train_counts
    assert np.bincount(dataset.test_labels).tolist() == test_counts
    assert abs(dataset.train_inputs.mean(dtype=np.float64)) < 1e-3
    assert abs(dataset.train_inputs.std(dtype=np.float64) - 1) < 1e-3


# The times in the headers of the published files.
GZIP_TIMES = [1504176606, 1504176606, 1504176627, 1504176627]


def test_debians_files_are_the_published_ones(real_data):
    """Debian removed name and time from the gzip headers; with both restored, the files have the published hashes.

    So the hashes of the contents belong to the hashes of the published files.
    """
    folder = real_data("fashion-mnist", *FILES)
    for (name, published), time in zip(FASHION_MNIST.source.files.items(), GZIP_TIMES, strict=True):
        compressed = (folder / name).read_bytes()
        content = hashlib.sha256(gzip.decompress(compressed)).hexdigest()
        assert content == FASHION_MNIST.content_sha256[name]
        if hashlib.sha256(compressed).hexdigest() == published:
            continue
        if compressed[3] != 0:
            pytest.skip("OFFBEAT_DATA holds neither the published files nor Debian's")
        header = b"\x1f\x8b\x08\x08" + struct.pack("<IBB", time, 0, 3)
        restored = header + name.removesuffix(".gz").encode() + b"\0" + compressed[10:]
        assert hashlib.sha256(restored).hexdigest() == published
