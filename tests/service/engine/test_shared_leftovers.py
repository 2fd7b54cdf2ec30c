"""Files that servers leave in the store that they share."""

from offbeat.service.engine import server_checkpoint, standby
from tests.postgres import postgres as postgres
from tests.postgres import store as store
from tests.service.conftest import running


def test_a_new_leader_deletes_the_checkpoint_of_the_one_before(tmp_path, store, monkeypatch):
    monkeypatch.setattr(server_checkpoint, "_STANDBY_SECONDS", 0.0)
    monkeypatch.setattr(standby, "_SILENT_SECONDS", 0.3)
    for start in range(3):
        with running(tmp_path / f"server-{start}", store=store) as server:
            server.enrol()
    assert len([path for path in (tmp_path / "blobs").rglob("checkpoints/*") if path.is_file()]) <= 2
