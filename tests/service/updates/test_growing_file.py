import hashlib
import os

import pytest

from offbeat.service.updates.growing_file import GrowingFile


@pytest.fixture
def path(tmp_path):
    return tmp_path / "body"


def test_a_file_grows_and_knows_its_digest(path):
    file = GrowingFile(path, 0)
    file.prepare()
    file.write([b"ab", b"c"])
    file.write([b"d"])
    file.close()
    assert (path.read_bytes(), file.size) == (b"abcd", 4)
    assert file.sha256() == hashlib.sha256(b"abcd").hexdigest()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_known", [True, False])
def test_a_file_is_continued_or_begins_anew(is_known, path):
    first = GrowingFile(path, 0)
    first.prepare()
    first.write([b"abc"])
    first.close()
    second = GrowingFile(path, 3, first if is_known else None)
    second.prepare()
    second.write([b"d"])
    second.close()
    assert second.sha256() == hashlib.sha256(b"abcd").hexdigest()
    third = GrowingFile(path, 0, second)
    third.prepare()
    third.write([b"x"])
    third.close()
    assert path.read_bytes() == b"x"
    assert third.sha256() == hashlib.sha256(b"x").hexdigest()


def test_after_a_failed_write_the_size_is_unknown_and_the_file_is_read_again(path, monkeypatch):
    first = GrowingFile(path, 0)
    first.prepare()
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
    second = GrowingFile(path, 4, first)
    second.prepare()
    assert second.sha256() == hashlib.sha256(b"abcd").hexdigest()
    second.close()
