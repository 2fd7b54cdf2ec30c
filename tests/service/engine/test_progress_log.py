"""The lines of a run's log at the level ``info``."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from offbeat.algorithms import FedBuff
from offbeat.coordinator.participation_limits import Participation
from offbeat.service.engine.progress_log import ProgressLog
from tests.service.conftest import running
from tests.service.http_client import ONES, until


def make() -> FedBuff:
    return FedBuff(buffer_size=2, concurrency=4)


def test_a_run_of_many_updates_is_a_few_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "offbeat.service")

    def lines(name: str) -> list[dict[str, Any]]:
        return [vars(record)["fields"] for record in caplog.records if record.msg == name]

    with running(tmp_path / "server", make, stop_versions=10, lease_seconds=0.5) as server:
        engine = server.service.engine
        progress = ProgressLog(engine, dict)
        peer, silent = server.enrol(), server.enrol()
        for _ in range(2):
            visit = peer.check_in()
            assert visit is not None
            assert peer.send(visit, ONES)["counted"]
        assert silent.check_in() is not None
        until(lambda: engine.calls.silent)
        progress.report()
        progress.report()  # since which nobody has done anything
        assert lines("progress") == [{"version": 1, "counted": 2, "unused": 0, "lost": 1, "at_work": 0, "waiting": 0}]
        assert lines("clients_silent") == [{"clients": [1]}]
        for _ in range(18):
            visit = peer.check_in()
            assert visit is not None
            assert peer.send(visit, ONES)["counted"]
        progress.report()
        assert lines("progress")[1:] == [
            {"version": 10, "counted": 18, "unused": 0, "lost": 0, "at_work": 0, "waiting": 0}
        ]
        assert peer.check_in() is None
        assert lines("run_ended") == [{"version": 10, "reason": "stop.versions"}]
        assert server.admin.http.post("/v1/admin/extend", json={"versions": 11}).status_code == 200
        for _ in range(2):
            visit = peer.check_in()
            assert visit is not None
            assert peer.send(visit, ONES)["counted"]
        assert [line["version"] for line in lines("run_ended")] == [10, 11]
    assert Counter(record.msg for record in caplog.records) == {
        "server started": 1, "token made": 2, "ready": 1, "client enrolled": 2, "progress": 2, "run_ended": 2,
        "clients_silent": 1,
        "run extended": 1, "server stopped": 1,
    }  # fmt: skip


def test_a_budget_that_is_nearly_spent_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "offbeat.service")
    with running(tmp_path / "server", make, clients=2, participation=Participation(2, limit=2)) as server:
        peers = [server.enrol() for _ in range(2)]
        progress = ProgressLog(server.service.engine, dict)
        for spent in (0.5, 1.0, 1.0):
            for peer in peers:
                if (visit := peer.check_in()) is not None:
                    peer.send(visit, ONES)
            progress.report()
            found = [vars(record)["fields"] for record in caplog.records if record.msg == "budget_low"]
            assert found == ([] if spent < 0.9 else [{"spent": 1.0}])
