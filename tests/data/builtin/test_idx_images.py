import gzip
import struct

import numpy as np
import pytest

from offbeat.data.builtin.idx_images import IdxFile, load_images
from offbeat.data.dataset import MissingDataError
from offbeat.data.source_files import Source
from offbeat.errors import OffbeatError


@pytest.fixture
def load(small_images, nowhere):
    files = [IdxFile(name, idx.elements.shape, "", idx.sha256) for name, idx in small_images.items()]
    source = Source("small", "Small", "http://127.0.0.1:1/", dict.fromkeys(small_images, ""))
    return lambda: load_images(source, files, 0.25, 0.5)


def test_inputs_and_labels(load, small_images, nowhere):
    for name, idx in small_images.items():
        idx.write(nowhere / "cache" / "small" / name)
    dataset = load()
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


@pytest.mark.parametrize("broken", ["truncated", "label 10"])
def test_a_broken_file_is_named(load, small_images, nowhere, broken):
    for name, idx in small_images.items():
        path = idx.write(nowhere / "cache" / "small" / name)
    if broken == "truncated":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.write_bytes(gzip.compress(struct.pack(">II", 0x801, 10) + bytes([10] * 10)))
    with pytest.raises(OffbeatError) as caught:
        load()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, MissingDataError)
