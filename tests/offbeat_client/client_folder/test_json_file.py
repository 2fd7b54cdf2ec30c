import stat

import pytest
from offbeat_client.client_folder.json_file import read_json, write_json
from offbeat_client.client_folder.outbox import Kept
from offbeat_core.errors import OffbeatError


def test_a_value_comes_back_and_only_its_owner_may_read_it(tmp_path):
    path = tmp_path / "x"
    assert read_json(path, dict) is None
    for value in ({"since": 1, "memory": None}, {}):
        write_json(path, value)
        assert read_json(path, dict) == value
        assert read_json(path, Kept) == Kept(**value)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b"{", b"\xff", b'{"other": 1}'])
def test_a_broken_file_is_named(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(OffbeatError, match=r"x is broken: remove it$"):
        read_json(tmp_path / "x", Kept)
