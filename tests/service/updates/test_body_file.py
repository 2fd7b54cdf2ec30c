import hashlib
import math
import os
import struct

import numpy as np
import pytest

from offbeat.service.updates.body_file import LARGEST_BEGINNING, BodyFile, Entries

START = 11


@pytest.fixture
def path(tmp_path):
    return tmp_path / "body"


def opened(path, size=0, kind="F32", before=None, new_digest=hashlib.sha256, end=None):
    file = BodyFile(path, size, new_digest, lambda _: kind and Entries(kind, START, end), before)
    file.prepare()
    return file


def body_of(vector):
    return bytes(START) + vector.tobytes()


def cut(body, size):
    return [body[begin : begin + size] for begin in range(0, len(body), size)]


def written(path, body, size, kind="F32"):
    file = opened(path, kind=kind, end=len(body))
    for piece in cut(body, size):
        file.write([piece])
    file.close()
    return file


@pytest.mark.parametrize("size", [1, 3, 4096, 5001, 10**6])
@pytest.mark.parametrize("length", [1, 1023, 3001])
def test_digest_and_norm_of_float32(path, size, length):
    vector = np.random.default_rng(0).standard_normal(length, dtype=np.float32)
    body = body_of(vector)
    file = written(path, body, size)
    assert path.read_bytes() == body
    assert path.stat().st_mode & 0o777 == 0o600
    assert file.digest() == hashlib.sha256(body).hexdigest()
    assert file.norm() == pytest.approx(np.linalg.norm(vector.astype(float)), rel=1e-5)


@pytest.mark.parametrize("size", [1, 5, 10**6])
def test_norm_of_bfloat16(path, size):
    words = (np.random.default_rng(0).standard_normal(5001, dtype=np.float32).view(np.uint32) >> 16).astype("<u2")
    file = written(path, body_of(words), size, kind="BF16")
    assert file.norm() == pytest.approx(np.linalg.norm([_bfloat16(word) for word in words]), rel=1e-5)


def _bfloat16(word):
    return struct.unpack("<f", struct.pack("<HH", 0, word))[0]


def test_a_body_without_entries_has_no_norm(path):
    assert written(path, bytes(10_000), 999, kind=None).norm() is None


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("index", [0, 2500, 4999])
def test_norms_of_what_is_not_finite_are_nan(path, bad, index):
    vector = np.ones(5000, np.float32)
    vector[index] = bad
    assert math.isnan(written(path, body_of(vector), 4099).norm())


def test_squares_that_overflow_have_a_norm(path):
    vector = np.full(5000, 1e38, np.float32)
    assert written(path, body_of(vector), 4099).norm() == pytest.approx(1e38 * math.sqrt(5000), rel=1e-5)


def test_entries_are_found_from_the_whole_beginning(path):
    given = []
    body = os.urandom(3 * LARGEST_BEGINNING)
    file = BodyFile(path, 0, hashlib.sha256, lambda beginning: given.append(beginning))
    for piece in cut(body, LARGEST_BEGINNING // 2 + 1):
        file.write([piece])
    file.close()
    assert given == [body[:LARGEST_BEGINNING]]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_file_is_continued_or_begins_anew(path, is_known, monkeypatch):
    vector = np.random.default_rng(0).standard_normal(5000, dtype=np.float32)
    body = body_of(vector)
    first = opened(path, end=len(body))
    first.write([body[:7777]])
    first.close()
    with monkeypatch.context() as patch:
        if is_known:
            patch.delattr(os, "preadv")  # it is not read again
        second = opened(path, 7777, before=first if is_known else None, end=len(body))
    second.write([body[7777:9000], body[9000:]])
    second.close()
    assert second.digest() == hashlib.sha256(body).hexdigest()
    assert second.norm() == pytest.approx(np.linalg.norm(vector.astype(float)), rel=1e-5)
    third = opened(path, 0, before=second)
    third.write([body])
    third.close()
    assert (path.read_bytes(), third.digest()) == (body, second.digest())


def test_a_body_that_ends_elsewhere_than_its_entries_has_no_norm(path):
    for end in (START + 4 * 2999, START + 4 * 3001):
        file = opened(path, end=end)
        file.write([body_of(np.ones(3000, np.float32))])
        file.close()
        assert file.norm() is None


def test_a_file_that_is_continued_with_another_digest_is_read_again(path):
    first = opened(path)
    first.write([b"abc"])
    first.close()
    second = opened(path, 3, before=first, new_digest=hashlib.blake2b)
    second.close()
    assert second.digest() == hashlib.blake2b(b"abc").hexdigest()


def test_a_file_that_is_too_short_is_not_continued(path):
    path.write_bytes(b"abc")
    with pytest.raises(OSError, match="ends before byte 4"):
        opened(path, 4)


def test_writes_that_take_a_part_are_continued(path, monkeypatch):
    monkeypatch.setattr(os, "pwritev", lambda descriptor, pieces, at: os.pwrite(descriptor, pieces[0][:1], at))
    body = os.urandom(1000)
    file = opened(path, kind=None)
    file.write([body[:10], body[10:]])
    file.close()
    assert path.read_bytes() == body


def test_after_a_failed_write_the_size_is_unknown_and_the_file_is_read_again(path, monkeypatch):
    first = opened(path, kind=None)
    first.write([b"abc"])

    def half(descriptor, pieces, begin):
        os.pwrite(descriptor, pieces[0][:1], begin)
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", half)
        with pytest.raises(OSError, match="no space"):
            first.write([b"def"])
    assert first.size == -1
    first.close()
    second = opened(path, 4, kind=None, before=first)
    second.write([b"e"])
    second.close()
    assert second.digest() == hashlib.sha256(b"abcde").hexdigest()


def test_any_digest_will_do(path):
    file = opened(path, kind=None, new_digest=hashlib.blake2b)
    file.write([b"abc"])
    file.close()
    assert file.digest() == hashlib.blake2b(b"abc").hexdigest()
