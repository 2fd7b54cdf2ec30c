"""Files that servers leave in the store that they share."""

import pytest
import sqlalchemy as sa

from offbeat.service.engine import server_checkpoint
from offbeat.service.server_settings import StoreSettings
from tests.postgres import postgres as postgres
from tests.service.conftest import running


@pytest.fixture
def store(postgres, tmp_path):
    yield StoreSettings(log=postgres.replace("+psycopg", ""), blobs=f"file://{tmp_path}/blobs")
    engine = sa.create_engine(postgres)
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE log, bodies, runs, leaders")
    engine.dispose()


def test_a_new_leader_deletes_the_checkpoint_of_the_one_before(tmp_path, store, monkeypatch):
    monkeypatch.setattr(server_checkpoint, "_STANDBY_SECONDS", 0.0)
    for start in range(3):
        with running(tmp_path / f"server-{start}", store=store) as server:
            server.enrol()
    assert len([path for path in (tmp_path / "blobs").rglob("checkpoints/*") if path.is_file()]) <= 2
