import gzip
import hashlib
import io
import os
import random
import re
import tarfile
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.data.builtin import cifar10
from offbeat.data.builtin.cifar10 import CLASSES, read_binary, read_jpegs
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


def binary_members():
    bytes_ = np.random.default_rng(0).integers(0, 256, (6, BATCH, 3073), np.uint8)
    bytes_[:, :, 0] %= 10
    names = [f"data_batch_{number}" for number in (1, 2, 3, 4, 5)] + ["test_batch"]
    return bytes_, {
        f"cifar-10-batches-bin/{name}.bin": part.tobytes() for name, part in zip(names, bytes_, strict=True)
    }


def jpeg_members():
    """Plain images whose colour encodes part, class and number."""
    return {
        f"{part}/{name}/{number:04}.jpg": jpeg((10 + 20 * CLASSES.index(name), 10 + 20 * number, value))
        for part, count, value in (("test", 2, 50), ("train", 10, 200))
        for name in CLASSES
        for number in range(count)
    }


JPEGS = jpeg_members()
FIRST = next(iter(JPEGS))


@pytest.fixture
def write(tmp_path):
    def write(content):
        path = tmp_path / "archive.tar.gz"
        path.write_bytes(content)
        return path

    return write


def refuse(read, path, reason, batch=BATCH):
    with pytest.raises(OffbeatError, match=reason) as caught:
        read(path, batch)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


class TestBinary:
    def test_the_records_order_does_not_depend_on_that_of_the_members(self, write):
        jpeg_records, members = binary_members()
        beside = [("cifar-10-batches-bin/readme.html", b"<html>"), ("cifar-10-batches-bin/batches.meta.txt", b"cat")]
        path = write(tar([*beside, *reversed(members.items())]))
        np.testing.assert_array_equal(read_binary(path, BATCH), jpeg_records.reshape(-1, 3073))

    def test_a_file_of_another_size(self, write):
        _, members = binary_members()
        name = "cifar-10-batches-bin/test_batch.bin"
        refuse(read_binary, write(tar((members | {name: b"abc"}).items())), "test_batch.bin holds 3 bytes, not 61,460")
        longer = members | {name: members[name] + b"\0"}
        refuse(read_binary, write(tar(longer.items())), "test_batch.bin holds 61,461 bytes, too many")

    def test_a_label_out_of_range(self, write):
        _, members = binary_members()
        name = "cifar-10-batches-bin/data_batch_3.bin"
        members[name] = b"\x0a" + members[name][1:]
        refuse(read_binary, write(tar(members.items())), "a label is 10, not 0 … 9")


@pytest.fixture(scope="module")
def jpeg_records(tmp_path_factory):
    path = tmp_path_factory.mktemp("jpegs") / "archive.tar.gz"
    path.write_bytes(tar(JPEGS.items()))
    return read_jpegs(path, BATCH)


class TestJpegs:
    def test_labels_and_channels(self, jpeg_records):
        assert jpeg_records.shape == (6 * BATCH, 3073)
        planes = jpeg_records[:, 1:].reshape(-1, 3, 1024)
        assert (planes.max(axis=2) - planes.min(axis=2)).max() == 0
        red, green, blue = planes[:, :, 0].T.astype(int)
        labels = jpeg_records[:, 0].astype(int)
        assert np.abs(red - (10 + 20 * labels)).max() <= 3
        assert np.abs(blue - np.repeat([200, 50], [5 * BATCH, BATCH])).max() <= 3
        numbers = np.rint((green - 10) / 20).astype(int)
        train = sorted(zip(labels[: 5 * BATCH], numbers[: 5 * BATCH], strict=True))
        assert train == [(label, number) for label in range(10) for number in range(10)]

    def test_the_order_is_that_of_the_hashes_of_the_names(self, jpeg_records):
        names = [f"train/{name}/{number:04}.jpg" for name in CLASSES for number in range(10)]
        names.sort(key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        assert [CLASSES[label] for label in jpeg_records[: 5 * BATCH, 0]] == [name.split("/")[1] for name in names]

    def test_the_order_in_the_archive_does_not_matter(self, jpeg_records, write):
        members = list(JPEGS.items())
        random.Random(0).shuffle(members)
        folders = [("train", b""), ("train/cat", b"")]
        archive = gzip.compress(gzip.decompress(tar(folders, tarfile.DIRTYPE))[:1024] + gzip.decompress(tar(members)))
        np.testing.assert_array_equal(read_jpegs(write(archive), BATCH), jpeg_records)

    def test_a_grey_picture_has_three_equal_channels(self, write):
        jpeg_records = read_jpegs(write(tar((JPEGS | {FIRST: jpeg(70, mode="L")}).items())), BATCH)
        assert sum((record[1:] == 70).all() for record in jpeg_records) == 1


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({}, "lacks 120 of its files, for instance test/airplane/0000.jpg"),
        ({name: content for name, content in JPEGS.items() if name != FIRST}, f"lacks 1 of its files.* {FIRST}"),
        (JPEGS | {"train/cat/0010.jpg": jpeg(0)}, "holds 'train/cat/0010.jpg', which does not belong there"),
        (JPEGS | {"../../x\ny": b""}, re.escape(r"holds '../../x\ny', which does not belong")),
        (JPEGS | {FIRST: b"GIF89a"}, f"{FIRST} is not a JPEG image"),
        (JPEGS | {FIRST: JPEGS[FIRST][:300]}, f"{FIRST} is not a JPEG image"),
        (JPEGS | {FIRST: jpeg(0, (32, 31))}, f"{FIRST} is an image of 32 × 31 pixels"),
        (JPEGS | {FIRST: JPEGS[FIRST] + bytes(8192)}, f"{FIRST} holds .* bytes, too many"),
    ],
)
def test_other_members_are_refused(write, members, reason):
    refuse(read_jpegs, write(tar(members.items())), reason)


def test_members_that_occur_twice_are_refused(write):
    refuse(read_jpegs, write(tar([*JPEGS.items(), (FIRST, JPEGS[FIRST])])), f"{FIRST} twice")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.FIFOTYPE])
def test_special_files_are_refused(write, kind):
    refuse(read_jpegs, write(tar([(FIRST, b"")], kind)), "does not belong there")


def test_many_folders_are_refused(write):
    refuse(read_jpegs, write(tar([(f"{number}", b"") for number in range(1200)], tarfile.DIRTYPE)), "too many members")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda z: b"<html>", "Not a gzipped file"),
        (lambda z: z[: len(z) // 2], "cannot read"),
        (lambda z: z[:-5] + bytes([z[-5] ^ 1]) + z[-4:], "CRC"),
        (lambda z: gzip.compress(b"not a tar file" * 100), "cannot read"),
    ],
)
def test_broken_archives_are_refused(write, change, reason):
    refuse(read_jpegs, write(change(tar(JPEGS.items()))), reason)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.REGTYPE])
def test_a_decompression_bomb_takes_little_memory(write, kind):
    """A header is read before its member is checked, so only the bound on the stream helps."""
    path = write(tar([("x", bytes(30_000_000))], kind))
    tracemalloc.start()
    refuse(read_jpegs, path, "far more than it should|does not belong")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10_000_000


SMALL = gzip.decompress(tar(list(JPEGS.items())[:2]))[:4096]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(changes=st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), max_size=20))
def test_any_bytes_are_refused(write, changes):
    content = bytearray(SMALL)
    for place, value in changes:
        content[place] = value
    with pytest.raises(OffbeatError):
        read_jpegs(write(gzip.compress(bytes(content), 1)), BATCH)
