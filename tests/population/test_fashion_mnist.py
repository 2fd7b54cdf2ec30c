import gzip
import hashlib
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from offbeat.errors import OffbeatError
from offbeat.population import fashion_mnist
from offbeat.population.dataset import MissingDataError

OFFICIAL_FILES = fashion_mnist.FILES


@pytest.fixture
def small(make_idx, monkeypatch, tmp_path):
    """Four small files in place of the real ones; nothing is anywhere, and nothing can be downloaded."""
    random = np.random.default_rng(0)
    files = {
        "train-images-idx3-ubyte.gz": make_idx(random.integers(0, 256, (20, 28, 28), np.uint8)),
        "train-labels-idx1-ubyte.gz": make_idx(random.integers(0, 10, 20, np.uint8)),
        "t10k-images-idx3-ubyte.gz": make_idx(random.integers(0, 256, (10, 28, 28), np.uint8)),
        "t10k-labels-idx1-ubyte.gz": make_idx(random.integers(0, 10, 10, np.uint8)),
    }
    table = {
        name: (idx.elements.shape, hashlib.sha256(idx.compressed).hexdigest(), idx.sha256)
        for name, idx in files.items()
    }
    monkeypatch.setattr(fashion_mnist, "FILES", table)
    monkeypatch.setattr(fashion_mnist, "BASE_URL", "http://127.0.0.1:1/")
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "debian")
    monkeypatch.setenv("OFFBEAT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("OFFBEAT_DATA", raising=False)
    return files


def put(files, folder: Path):
    for name, idx in files.items():
        idx.write(folder / name)


def test_inputs_and_labels(small, tmp_path):
    put(small, tmp_path / "debian")
    dataset = fashion_mnist.load()
    images = small["train-images-idx3-ubyte.gz"].elements
    assert (dataset.name, dataset.classes, dataset.input_shape) == ("fashion-mnist", 10, (1, 28, 28))
    assert dataset.train_inputs.dtype == np.float32
    assert dataset.train_labels.dtype == np.int64
    np.testing.assert_allclose(dataset.train_inputs[:, 0], (images / 255 - 0.2860) / 0.3530, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(dataset.train_labels, small["train-labels-idx1-ubyte.gz"].elements)
    assert dataset.test_inputs.shape == (10, 1, 28, 28)
    np.testing.assert_array_equal(dataset.test_labels, small["t10k-labels-idx1-ubyte.gz"].elements)


def test_the_order_of_sources(small, tmp_path, server, monkeypatch):
    """Each source that is added goes before those that were there."""
    monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    sources = [("debian",), ("cache", "fashion-mnist"), ("data",), ("data", "fashion-mnist")]
    for source in sources:
        folder = tmp_path.joinpath(*source)
        put(small, folder)
        assert fashion_mnist._find() == folder
        fashion_mnist.load()
    assert server.requests == []


def test_the_last_source_is_a_download_into_the_cache(small, tmp_path, server, monkeypatch):
    server.files = {name: idx.compressed for name, idx in small.items()}
    monkeypatch.setattr(fashion_mnist, "BASE_URL", server.url)
    # gzip.compress writes the time, so take the hashes of what is served.
    for name, (shape, _, content) in fashion_mnist.FILES.items():
        fashion_mnist.FILES[name] = (shape, hashlib.sha256(server.files[name]).hexdigest(), content)
    first = fashion_mnist.load()
    assert {path.name for path in (tmp_path / "cache" / "fashion-mnist").iterdir()} == set(small)
    assert len(server.requests) == 5
    second = fashion_mnist.load()
    assert len(server.requests) == 5, "the second time, the cache is enough"
    np.testing.assert_array_equal(first.train_inputs, second.train_inputs)


def test_a_corrupt_download_is_refused(small, tmp_path, server, monkeypatch):
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    monkeypatch.setattr(fashion_mnist, "BASE_URL", server.url)
    server.files = dict.fromkeys(small, b"<html>please log in</html>")
    with pytest.raises(MissingDataError, match=r"train-images-idx3-ubyte\.gz has a wrong SHA-256"):
        fashion_mnist.load()
    assert list((tmp_path / "cache" / "fashion-mnist").iterdir()) == []


def test_nothing_to_be_had(small, tmp_path, monkeypatch):
    monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path))
    with pytest.raises(MissingDataError) as caught:
        fashion_mnist.load()
    message = str(caught.value)
    for word in ("OFFBEAT_DATA", "apt install dataset-fashion-mnist", "get online", "http://127.0.0.1:1/"):
        assert word in message
    assert "\n" not in message


def test_an_unset_and_an_empty_variable_are_alike(small, tmp_path, monkeypatch):
    put(small, tmp_path / "debian")
    put(small, tmp_path / "here")
    monkeypatch.setenv("OFFBEAT_DATA", "")
    monkeypatch.chdir(tmp_path / "here")
    assert fashion_mnist._find() == tmp_path / "debian"


@pytest.mark.parametrize("name", ["none", "file"])
def test_offbeat_data_is_not_a_folder(small, tmp_path, monkeypatch, name):
    put(small, tmp_path / "debian")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path / name))
    with pytest.raises(OffbeatError, match=rf"OFFBEAT_DATA is '.*{name}', which is not a folder"):
        fashion_mnist.load()


@pytest.mark.parametrize("folder", ["data", "data/fashion-mnist"])
def test_part_of_the_files_in_offbeat_data(small, tmp_path, monkeypatch, folder):
    put(small, tmp_path / "debian")
    put(small, tmp_path / folder)
    (tmp_path / folder / "t10k-labels-idx1-ubyte.gz").unlink()
    monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path / "data"))
    with pytest.raises(
        OffbeatError, match=rf"{folder} holds only part of Fashion-MNIST: add t10k-labels-idx1-ubyte\.gz"
    ):
        fashion_mnist.load()


def test_a_download_that_was_interrupted_hides_nothing(small, tmp_path):
    put(small, tmp_path / "debian")
    name = "train-images-idx3-ubyte.gz"
    small[name].write(tmp_path / "cache" / "fashion-mnist" / name)
    assert fashion_mnist._find() == tmp_path / "debian"


@pytest.mark.parametrize("source", ["data", "cache", "debian"])
@pytest.mark.parametrize("broken", ["truncated", "label 10"])
def test_a_broken_file_is_named(small, tmp_path, monkeypatch, source, broken):
    folder = tmp_path / source / ("" if source == "debian" else "fashion-mnist")
    put(small, folder)
    path = folder / "t10k-labels-idx1-ubyte.gz"
    if broken == "truncated":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.write_bytes(gzip.compress(struct.pack(">II", 0x801, 10) + bytes([10] * 10)))
    if source == "data":
        monkeypatch.setenv("OFFBEAT_DATA", str(tmp_path / "data"))
    with pytest.raises(OffbeatError) as caught:
        fashion_mnist.load()
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not isinstance(caught.value, MissingDataError)


def test_the_hashes_are_those_of_the_published_files():
    compressed = {name: sha256 for name, (_, sha256, _) in OFFICIAL_FILES.items()}
    assert compressed == {
        "train-images-idx3-ubyte.gz": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1-ubyte.gz": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3-ubyte.gz": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1-ubyte.gz": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    }


def real_folder() -> Path:
    root = os.environ.get("OFFBEAT_DATA")
    if not root:
        pytest.skip("OFFBEAT_DATA is not set: no real Fashion-MNIST to check")
    for folder in (Path(root) / "fashion-mnist", Path(root)):
        if all((folder / name).is_file() for name in OFFICIAL_FILES):
            return folder
    pytest.skip("OFFBEAT_DATA holds no Fashion-MNIST to check")


def test_the_real_files():
    folder = real_folder()
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


def test_the_published_files_have_this_content():
    """Debian removed name and time from the gzip headers. With both put back, its files are the published ones,
    so the hashes of the contents belong to the hashes of the published files."""
    folder = real_folder()
    for name, (_, published, _) in OFFICIAL_FILES.items():
        raw = (folder / name).read_bytes()
        if hashlib.sha256(raw).hexdigest() == published:
            continue
        if raw[3] != 0:
            pytest.skip("OFFBEAT_DATA holds neither the published files nor Debian's")
        header = b"\x1f\x8b\x08\x08" + struct.pack("<IBB", GZIP_TIMES[name], 0, 3)
        restored = header + name.removesuffix(".gz").encode() + b"\0" + raw[10:]
        assert hashlib.sha256(restored).hexdigest() == published
