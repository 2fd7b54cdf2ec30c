import stat

import pytest
from offbeat_client.client_folder.private_record import PrivateRecord, PrivateRecordFile, has_private_record
from offbeat_core.errors import OffbeatError


def test_a_record_is_kept_for_each_run(tmp_path):
    first, second = (PrivateRecordFile(tmp_path, digest) for digest in (b"1" * 32, b"2" * 32))
    assert first.read() == PrivateRecord(visit=-1, start_version=-1, head_number=-1, head="", epoch=-1)
    assert not has_private_record(tmp_path)
    first.write(PrivateRecord(3, 7, 5, "0a"))
    assert has_private_record(tmp_path)
    assert PrivateRecordFile(tmp_path, b"1" * 32).read() == PrivateRecord(3, 7, 5, "0a")
    assert second.read() == PrivateRecord()
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_a_broken_record_is_one_line(tmp_path):
    (tmp_path / f"private-{(b'1' * 32).hex()}.json").write_text("{")
    with pytest.raises(OffbeatError, match=r"^[^\n]*is broken: put it back, or have a new key enrolled"):
        PrivateRecordFile(tmp_path, b"1" * 32).read()
