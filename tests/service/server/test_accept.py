"""A database that may lack acknowledged rows is led only once an operator has accepted it."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
import torch
from offbeat_core.errors import OffbeatError

from offbeat.service.engine import standby
from offbeat.service.log.log import Row
from offbeat.service.log.open_log import open_log
from offbeat.service.server.accept import accept
from offbeat.service.store_settings import StoreSettings
from tests.postgres import postgres as postgres
from tests.postgres import run, server_folder, started
from tests.postgres import store as store
from tests.service.conftest import LENGTH, Peer, running


def work(peer: Peer, updates: int) -> None:
    for _ in range(updates):
        visit = peer.check_in()
        assert visit is not None
        assert peer.send(visit, torch.ones(LENGTH))["counted"]


@pytest.fixture(autouse=True)
def _leads_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "_SILENT_SECONDS", 0.5)


def test_a_replica_that_lacks_rows_is_led_once_an_operator_accepts_it(
    tmp_path: Path, postgres: str, store: StoreSettings
) -> None:
    host = postgres.rpartition("=")[2]
    with server_folder() as folder:
        with running(tmp_path / "one", store=store) as server:
            peer = server.enrol()
            work(peer, 2)
            run("pg_basebackup", "-D", folder / "data", "-h", host, "-U", "offbeat", "--checkpoint=fast")
            work(peer, 1)  # acknowledged, and not in the replica
        run("touch", folder / "data" / "standby.signal")
        with started(folder) as url:
            replica = store.model_copy(update={"log": url.replace("+psycopg", "")})
            with pytest.raises(OffbeatError, match="is a replica, which takes no rows: give the primary's address"):
                accept(replica)
            run("pg_ctl", "-D", folder / "data", "-w", "promote")
            line = r"failed over to a replica, since epoch 1 \(system \d+, timeline 1; now system \d+, timeline 2\)"
            with pytest.raises(OffbeatError, match=line), running(tmp_path / "two", store=replica):
                pass
            last = accept(replica)
            with pytest.raises(OffbeatError, match="is the database that it was: there is nothing to accept"):
                accept(replica)
            with pytest.raises(OffbeatError, match="it lacks row"), running(tmp_path / "one", store=replica):
                pass  # its folder knows later rows
            with running(tmp_path / "two", store=replica) as server:
                assert server.service.engine.coordinator.statistics.counted == 2
                assert server.service.engine.log_writer.number > last
                work(server.peer(peer.token), 1)


def test_a_private_run_is_not_accepted(store: StoreSettings) -> None:
    async def begin() -> None:
        with closing(open_log(store.log)) as log:
            config = json.dumps({"run": log.run, "config": {"privacy": {}}})
            place = json.dumps({"system": "1", "timeline": 1})
            rows = [Row(1, 1, "term", "a"), Row(2, 1, "run", "begin", config), Row(3, 1, "place", "found", place)]
            await log.append(rows, after=(0, 0))

    asyncio.run(begin())
    with pytest.raises(OffbeatError, match=r"this run is private.*: begin a new run"):
        accept(store)
    engine = sa.create_engine(store.log.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM log").scalar() == 3
    engine.dispose()
