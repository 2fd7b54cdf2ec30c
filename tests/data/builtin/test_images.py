import gzip
import hashlib
import re
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from offbeat_core.errors import OffbeatError
from sklearn.datasets import load_digits

from offbeat.data.builtin.images import FASHION_MNIST, MNIST, IdxDataset, digits, read_idx, standardise
from offbeat.data.dataset import MissingDataError
from offbeat.data.source_files import Source

SHAPE = (3, 2, 2)


@pytest.fixture
def idx(make_idx):
    return make_idx(np.arange(12, dtype=np.uint8).reshape(SHAPE))


def test_returns_the_elements(idx, tmp_path):
    elements = read_idx(idx.write(tmp_path / "a.gz"), SHAPE, idx.sha256)
    assert elements.dtype == np.uint8
    np.testing.assert_array_equal(elements, idx.elements)


def refuse(path, sha256, reason):
    with pytest.raises(OffbeatError, match=reason) as caught:
        read_idx(path, SHAPE, sha256)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: c[:3], "only 3 bytes"),
        (lambda c: c[:13], "only 13 bytes"),  # in the middle of a dimension
        (lambda c: b"\x01" + c[1:], "starts with 01000803, not with 00000803"),
        (lambda c: c[:2] + b"\x0d" + c[3:], "starts with 00000d03"),  # floats
        (lambda c: c[:4] + b"\xff\xff\xff\xff" + c[8:], re.escape("dimensions are (4294967295, 2, 2), not (3, 2, 2)")),
        (lambda c: c[:-1], "fewer than 28 bytes"),
        (lambda c: c + b"\0", "more than 28 bytes"),
        (lambda c: c[:-1] + b"\xff", "SHA-256"),
    ],
)
def test_other_content_is_refused(idx, tmp_path, change, reason):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(change(idx.content)))
    refuse(path, idx.sha256, reason)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda z: z[:-1], "end-of-stream"),
        (lambda z: b"<html>", "Not a gzipped file"),
        (lambda z: z[:12] + b"\xff\xff\xff" + z[15:], "cannot read"),
        (lambda z: z[:-5] + bytes([z[-5] ^ 1]) + z[-4:], "CRC"),
    ],
)
def test_broken_compression_is_refused(idx, tmp_path, change, reason):
    path = tmp_path / "a.gz"
    path.write_bytes(change(idx.compressed))
    refuse(path, idx.sha256, reason)


def test_paths_that_cannot_be_read_are_named(tmp_path):
    refuse(tmp_path / "none.gz", "", "No such file")
    refuse(tmp_path, "", "Is a directory")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=40), compressed=st.booleans())
def test_any_bytes_are_refused(tmp_path, content, compressed):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"\0\0\x08\x03" + content) if compressed else content)
    with pytest.raises(OffbeatError):
        read_idx(path, SHAPE, hashlib.sha256(b"another").hexdigest())


def test_a_decompression_bomb_takes_little_memory(idx, tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(idx.content + bytes(10_000_000)))
    tracemalloc.start()
    refuse(path, idx.sha256, "more than 28 bytes")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_000_000


@pytest.fixture
def small(small_images, nowhere):
    """A data set of small images, whose files are in the cache."""
    for name, idx in small_images.items():
        idx.write(nowhere / "cache" / "small" / name)
    return IdxDataset(
        Source("small", "Small", "http://127.0.0.1:1/", dict.fromkeys(small_images, "")),
        shapes={name: idx.elements.shape for name, idx in small_images.items()},
        content_sha256={name: idx.sha256 for name, idx in small_images.items()},
        mean=0.25,
        deviation=0.5,
    )


def test_inputs_and_labels(small, small_images):
    dataset = small.load()
    assert (dataset.name, dataset.classes, dataset.tokens, dataset.users) == ("small", 10, None, None)
    for inputs, labels, images, numbers in (
        (dataset.train_inputs, dataset.train_labels, "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
        (dataset.test_inputs, dataset.test_labels, "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
    ):
        expected = (small_images[images].elements[:, None] / 255 - 0.25) / 0.5
        assert inputs.dtype == np.float32
        np.testing.assert_allclose(inputs, expected, rtol=1e-4, atol=1e-6)
        assert labels.dtype == np.int64
        np.testing.assert_array_equal(labels, small_images[numbers].elements)


def test_a_broken_file_is_named(small, nowhere):
    path = nowhere / "cache" / "small" / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(gzip.compress(struct.pack(">II", 0x801, 10) + bytes([10] * 10)))  # a label out of range
    with pytest.raises(OffbeatError, match=re.escape(str(path))) as caught:
        small.load()
    assert not isinstance(caught.value, MissingDataError)


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
    real_data(idx_dataset.source.name, *idx_dataset.source.files)
    dataset = idx_dataset.load()
    assert dataset.train_inputs.shape == (60_000, 1, 28, 28)
    assert dataset.test_inputs.shape == (10_000, 1, 28, 28)
    assert dataset.train_labels[:8].tolist() == first_labels
    assert np.bincount(dataset.train_labels).tolist() == train_counts
    assert np.bincount(dataset.test_labels).tolist() == test_counts
    assert abs(dataset.train_inputs.mean(dtype=np.float64)) < 1e-3
    assert abs(dataset.train_inputs.std(dtype=np.float64) - 1) < 1e-3


@given(
    pictures=hnp.arrays(np.uint8, st.tuples(st.integers(0, 4), st.just(2), st.integers(1, 3), st.integers(1, 3))),
    mean=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    deviation=st.tuples(st.floats(0.1, 1), st.floats(0.1, 1)),
)
def test_each_channel_by_its_own_numbers(pictures, mean, deviation):
    inputs = standardise(pictures, mean, deviation)
    assert inputs.dtype == np.float32
    assert inputs.shape == pictures.shape
    for channel in range(2):
        expected = (pictures[:, channel] / 255 - mean[channel]) / deviation[channel]
        np.testing.assert_allclose(inputs[:, channel], expected, rtol=1e-4, atol=1e-5)


def test_no_second_copy_is_made():
    pictures = np.zeros((500, 3, 32, 32), np.uint8)
    tracemalloc.start()
    inputs = standardise(pictures, [0.5] * 3, [0.2] * 3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.1 * inputs.nbytes
    assert (pictures == 0).all()


@pytest.fixture(scope="module")
def dataset():
    return digits()


def test_shapes_and_types(dataset):
    assert dataset.train_inputs.shape == (1433, 1, 8, 8)
    assert dataset.test_inputs.shape == (364, 1, 8, 8)
    assert dataset.train_inputs.dtype == dataset.test_inputs.dtype == np.float32
    assert dataset.train_labels.dtype == dataset.test_labels.dtype == np.int64
    assert dataset.classes == 10


def test_every_image_is_in_one_part_with_its_label(dataset):
    images, labels = load_digits(return_X_y=True)
    expected = sorted((*image, label) for image, label in zip(images / 16, labels, strict=True))
    inputs = np.concatenate([dataset.train_inputs, dataset.test_inputs]).reshape(-1, 64)
    found = np.column_stack([inputs, np.concatenate([dataset.train_labels, dataset.test_labels])])
    assert sorted(map(tuple, found.tolist())) == expected
    train, test = np.bincount(dataset.train_labels), np.bincount(dataset.test_labels)
    assert np.abs(test - (train + test) / 5).max() < 1
