"""Which configurations a server's folder is opened with."""

import pytest

from offbeat.errors import OffbeatError
from tests.service.conftest import running


def config(**server):
    return {"server": server, "model": {"name": "mlp"}}


def test_a_folder_of_an_earlier_version_takes_on_the_new_limits(tmp_path):
    with running(tmp_path / "server", config=config(max_staleness=3)):
        pass
    wanted = config(max_staleness=3, lease_seconds=600.0, max_visit_seconds=14400.0)
    for _ in range(2):
        with running(tmp_path / "server", config=wanted):
            pass
    for other in (
        config(max_staleness=3, lease_seconds=60.0, max_visit_seconds=14400.0),
        config(max_staleness=3, lease_seconds=600.0, max_visit_seconds=60.0),
        config(max_staleness=4, lease_seconds=600.0, max_visit_seconds=14400.0),
    ):
        with pytest.raises(OffbeatError, match=r"other settings \(server\)"):
            running(tmp_path / "server", config=other).__enter__()


def test_a_folder_of_an_earlier_version_keeps_the_lease_that_it_was_begun_with(tmp_path):
    with running(tmp_path / "server", config=config(lease_seconds=60.0)):
        pass
    with pytest.raises(OffbeatError, match=r"other settings \(server\)"):
        running(tmp_path / "server", config=config(lease_seconds=600.0, max_visit_seconds=1.0)).__enter__()
    with running(tmp_path / "server", config=config(lease_seconds=60.0, max_visit_seconds=1.0)):
        pass


def test_other_settings_are_named_in_one_line(tmp_path):
    with running(tmp_path / "server", config={"model": 1, "local": 2}):
        pass
    with pytest.raises(OffbeatError, match=r"other settings \(local, model\)") as caught:
        running(tmp_path / "server", config={"model": 2}).__enter__()
    assert "\n" not in str(caught.value)
