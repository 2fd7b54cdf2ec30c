import stat

import pytest

from offbeat_client.client_folder.json_file import read_json, write_json
from offbeat_client.errors import OffbeatError


def test_a_value_comes_back_and_only_its_owner_may_read_it(tmp_path):
    assert read_json(tmp_path / "x") is None
    for value in ({"a": 1, "b": None}, {}):
        write_json(tmp_path / "x", value)
        assert read_json(tmp_path / "x") == value
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff"])
def test_a_broken_file_is_named(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(OffbeatError, match=r"x is broken: take another folder"):
        read_json(tmp_path / "x")
