import hashlib
import io
import os

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.data.builtin import cifar10
from offbeat.data.builtin.cifar10_archives import CLASSES
from offbeat.data.source_files import Source
from tests.data.builtin.archives import jpeg, tar

BATCH = 20
OFFICIAL, JPEG = "cifar-10-binary.tar.gz", "cifar10-jpeg.tar.gz"


@pytest.fixture(scope="module")
def records():
    records = np.random.default_rng(0).integers(0, 256, (6 * BATCH, 3073), np.uint8)
    records[:, 0] %= 10
    return records


@pytest.fixture(scope="module")
def official(records):
    names = ["data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"]
    parts = zip(names, records.reshape(6, -1), strict=True)
    return tar([(f"cifar-10-batches-bin/{name}.bin", part.tobytes()) for name, part in parts])


def jpegs(colour):
    counts = {"train": BATCH // 2, "test": BATCH // 10}
    names = [f"{part}/{name}/{i:04}.jpg" for part, count in counts.items() for name in CLASSES for i in range(count)]
    return tar((name, jpeg(colour)) for name in names)


@pytest.fixture
def folder(nowhere, official, monkeypatch):
    source = Source(
        "cifar10", "CIFAR-10", "http://127.0.0.1:1/", {OFFICIAL: hashlib.sha256(official).hexdigest()}, JPEG
    )
    monkeypatch.setattr(cifar10, "SOURCE", source)
    monkeypatch.setattr(cifar10, "BATCH", BATCH)
    folder = nowhere / "data"
    folder.mkdir()
    monkeypatch.setenv("OFFBEAT_DATA", str(folder))
    return folder


@pytest.fixture
def read(monkeypatch):
    """The names of the archives that were read rather than taken from the cache."""
    archives = []
    for name in ("read_binary", "read_jpegs"):
        original = getattr(cifar10, name)

        def counting(path, batch, original=original):
            archives.append(path.name)
            return original(path, batch)

        monkeypatch.setattr(cifar10, name, counting)
    return archives


def cached(nowhere):
    return sorted((nowhere / "cache" / "cifar10").glob("*"))


def test_the_official_archive(folder, official, records):
    (folder / OFFICIAL).write_bytes(official)
    (folder / JPEG).write_bytes(b"not looked at")
    dataset = cifar10.load()
    assert (dataset.name, dataset.classes, dataset.input_shape) == ("cifar10", 10, (3, 32, 32))
    assert dataset.train_inputs.dtype == np.float32
    assert dataset.train_labels.dtype == np.int64
    pictures = records[:, 1:].reshape(-1, 3, 32, 32) / 255
    for channel, (mean, deviation) in enumerate([(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)]):
        expected = (pictures[:, channel] - mean) / deviation
        np.testing.assert_allclose(dataset.train_inputs[:, channel], expected[:100], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(dataset.test_inputs[:, channel], expected[100:], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(dataset.train_labels, records[:100, 0])
    np.testing.assert_array_equal(dataset.test_labels, records[100:, 0])


def test_the_second_load_reads_the_cache(folder, official, read, nowhere):
    (folder / OFFICIAL).write_bytes(official)
    first, second = cifar10.load(), cifar10.load()
    assert read == [OFFICIAL]
    np.testing.assert_array_equal(first.train_inputs, second.train_inputs)
    np.testing.assert_array_equal(first.test_labels, second.test_labels)
    assert len(cached(nowhere)) == 1


def test_a_changed_archive_is_read_again(folder, read):
    (folder / JPEG).write_bytes(jpegs((250, 0, 0)))
    os.utime(folder / JPEG, (1, 1))
    assert cifar10.load().train_inputs[:, 0].min() > 1
    (folder / JPEG).write_bytes(jpegs((0, 250, 0)))
    os.utime(folder / JPEG, (1, 1))
    assert cifar10.load().train_inputs[:, 0].max() < -1
    assert read == [JPEG, JPEG]


def pickled(content):
    file = io.BytesIO()
    np.save(file, np.array([{}]), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize("change", [lambda c: c[:-1], lambda c: c.replace(b"120, 3073", b"120, 3072"), pickled])
def test_a_broken_cache_is_made_again(folder, official, read, nowhere, change):
    (folder / OFFICIAL).write_bytes(official)
    first = cifar10.load()
    (path,) = cached(nowhere)
    whole = path.read_bytes()
    assert change(whole) != whole
    path.write_bytes(change(whole))
    np.testing.assert_array_equal(cifar10.load().train_inputs, first.train_inputs)
    assert read == [OFFICIAL, OFFICIAL]
    assert path.read_bytes() == whole


def test_an_interrupted_write_leaves_nothing(folder, official, nowhere, monkeypatch):
    def interrupt(file, *args, **kwargs):
        file.write(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "save", interrupt)
    (folder / OFFICIAL).write_bytes(official)
    with pytest.raises(KeyboardInterrupt):
        cifar10.load()
    assert cached(nowhere) == []


def test_an_unwritable_cache_is_no_obstacle(folder, official, nowhere):
    (nowhere / "cache").write_text("a file, so no folder can be made")
    (folder / OFFICIAL).write_bytes(official)
    assert len(cifar10.load().train_inputs) == 100


def test_another_archive_of_the_official_name_is_refused(folder, read):
    (folder / OFFICIAL).write_bytes(jpegs((0, 0, 0)))
    with pytest.raises(OffbeatError, match=rf"{OFFICIAL} is not the official archive: its SHA-256 .*; remove"):
        cifar10.load()
    assert read == []
