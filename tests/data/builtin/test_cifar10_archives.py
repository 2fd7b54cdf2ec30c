import gzip
import hashlib
import random
import re
import tarfile
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.data.builtin.cifar10_archives import CLASSES, read_binary, read_jpegs
from tests.data.builtin.archives import jpeg, tar

BATCH = 20  # so each class has 10 pictures to train on and 2 to test


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
        records, members = binary_members()
        beside = [("cifar-10-batches-bin/readme.html", b"<html>"), ("cifar-10-batches-bin/batches.meta.txt", b"cat")]
        path = write(tar([*beside, *reversed(members.items())]))
        np.testing.assert_array_equal(read_binary(path, BATCH), records.reshape(-1, 3073))

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
def records(tmp_path_factory):
    path = tmp_path_factory.mktemp("jpegs") / "archive.tar.gz"
    path.write_bytes(tar(JPEGS.items()))
    return read_jpegs(path, BATCH)


class TestJpegs:
    def test_labels_and_channels(self, records):
        assert records.shape == (6 * BATCH, 3073)
        planes = records[:, 1:].reshape(-1, 3, 1024)
        assert (planes.max(axis=2) - planes.min(axis=2)).max() == 0
        red, green, blue = planes[:, :, 0].T.astype(int)
        labels = records[:, 0].astype(int)
        assert np.abs(red - (10 + 20 * labels)).max() <= 3
        assert np.abs(blue - np.repeat([200, 50], [5 * BATCH, BATCH])).max() <= 3
        numbers = np.rint((green - 10) / 20).astype(int)
        train = sorted(zip(labels[: 5 * BATCH], numbers[: 5 * BATCH], strict=True))
        assert train == [(label, number) for label in range(10) for number in range(10)]

    def test_the_order_is_that_of_the_hashes_of_the_names(self, records):
        names = [f"train/{name}/{number:04}.jpg" for name in CLASSES for number in range(10)]
        names.sort(key=lambda name: hashlib.sha256(name.encode()).hexdigest())
        assert [CLASSES[label] for label in records[: 5 * BATCH, 0]] == [name.split("/")[1] for name in names]

    def test_the_order_in_the_archive_does_not_matter(self, records, write):
        members = list(JPEGS.items())
        random.Random(0).shuffle(members)
        folders = [("train", b""), ("train/cat", b"")]
        archive = gzip.compress(gzip.decompress(tar(folders, tarfile.DIRTYPE))[:1024] + gzip.decompress(tar(members)))
        np.testing.assert_array_equal(read_jpegs(write(archive), BATCH), records)

    def test_a_grey_picture_has_three_equal_channels(self, write):
        records = read_jpegs(write(tar((JPEGS | {FIRST: jpeg(70, mode="L")}).items())), BATCH)
        assert sum((record[1:] == 70).all() for record in records) == 1


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
