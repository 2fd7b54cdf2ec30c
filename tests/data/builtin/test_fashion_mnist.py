import gzip
import hashlib
import struct

import numpy as np
import pytest

from offbeat.data.builtin import fashion_mnist


def test_the_hashes_are_those_of_the_published_files():
    assert fashion_mnist.SOURCE.name == "fashion-mnist"
    assert fashion_mnist.SOURCE.files == {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    }


def test_the_real_files(real_data):
    folder = real_data("fashion-mnist", *fashion_mnist.SOURCE.files)
    with gzip.open(folder / "train-images-idx3-ubyte.gz") as file:
        content = hashlib.sha256(file.read()).hexdigest()
    assert content == "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"
    dataset = fashion_mnist.load()
    assert dataset.train_inputs.shape == (60_000, 1, 28, 28)
    assert dataset.test_inputs.shape == (10_000, 1, 28, 28)
    assert np.bincount(dataset.train_labels).tolist() == [6_000] * 10
    assert np.bincount(dataset.test_labels).tolist() == [1_000] * 10
    assert abs(dataset.train_inputs.mean(dtype=np.float64)) < 1e-3
    assert abs(dataset.train_inputs.std(dtype=np.float64) - 1) < 1e-3
    assert dataset.train_labels[:5].tolist() == [9, 0, 0, 3, 0]


# The time in the header of each published file.
GZIP_TIMES = {
    "train-images-idx3-ubyte.gz": 1504176606,
    "train-labels-idx1-ubyte.gz": 1504176606,
    "t10k-images-idx3-ubyte.gz": 1504176627,
    "t10k-labels-idx1-ubyte.gz": 1504176627,
}


def test_the_published_files_have_this_content(real_data):
    """Debian removed name and time from the gzip headers. With both put back, its files are the published ones,
    so the hashes of the contents belong to the hashes of the published files."""
    folder = real_data("fashion-mnist", *fashion_mnist.SOURCE.files)
    for name, published in fashion_mnist.SOURCE.files.items():
        raw = (folder / name).read_bytes()
        if hashlib.sha256(raw).hexdigest() == published:
            continue
        if raw[3] != 0:
            pytest.skip("OFFBEAT_DATA holds neither the published files nor Debian's")
        header = b"\x1f\x8b\x08\x08" + struct.pack("<IBB", GZIP_TIMES[name], 0, 3)
        restored = header + name.removesuffix(".gz").encode() + b"\0" + raw[10:]
        assert hashlib.sha256(restored).hexdigest() == published
