import hashlib

import pytest
from offbeat_core import digests
from offbeat_core.digests import digest_of_file, kind_of, named_digest, new_digest
from offbeat_core.errors import OffbeatError


def test_a_digest_names_its_kind(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    digest = digest_of_file(tmp_path / "file", "sha256")
    assert digest == hashlib.sha256(b"abc").hexdigest()
    assert kind_of(digest) == "sha256"
    assert named_digest("blake3", "12") == "blake3:12"
    assert kind_of("blake3:12") == "blake3"


def test_blake3_is_that_of_its_paper(tmp_path):
    pytest.importorskip("blake3")
    (tmp_path / "file").write_bytes(b"")
    expected = "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert digest_of_file(tmp_path / "file", "blake3") == expected


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(digests, "has_blake3", lambda: False)
    with pytest.raises(OffbeatError, match="pip install blake3"):
        new_digest("blake3")
