"""The configurations that a server's folder accepts."""

import pytest

from offbeat.errors import OffbeatError
from tests.service.conftest import running


def test_other_settings_are_named_in_one_line(tmp_path):
    with running(tmp_path / "server", config={"model": 1, "local": 2}):
        pass
    with pytest.raises(OffbeatError, match=r"other settings \(local, model\)") as caught:
        running(tmp_path / "server", config={"model": 2}).__enter__()
    assert "\n" not in str(caught.value)
