"""Sentences on what needs a person; what each says is worked out by hand."""

import math
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offbeat.algorithms import FedAvg, FedBuff
from offbeat.coordinator.participation_limits import Participation
from offbeat.service.engine import problems as module
from offbeat.service.engine.progress_log import LastHour
from tests.service.conftest import Served, body_of, running
from tests.service.http_client import NANS, ONES, until


def found(server: Served) -> list[str]:
    return server.admin.http.get("/v1/status").json()["problems"]


def test_a_run_at_work_has_none(tmp_path: Path) -> None:
    with running(tmp_path / "server", lease_seconds=60.0) as server:
        peer = server.enrol()
        for _ in range(3):
            assert peer.send(peer.check_in(), ONES)["counted"]
        assert peer.check_in() is not None
        assert found(server) == []


def test_what_a_run_waits_for(tmp_path: Path) -> None:
    with running(tmp_path / "server", lambda: FedAvg(cohort=3)) as server:
        assert found(server) == ["The run waits for 3 of 3 clients to enrol: start clients with an enrolment token"]
        server.enrol(), server.enrol()
        assert found(server) == ["The run waits for 1 of 3 clients to enrol: start clients with an enrolment token"]
        server.enrol()
        assert found(server) == []
        server.admin.http.post("/v1/admin/pause")
        assert found(server) == ["The run waits for an admin to resume it"]


def test_a_run_without_clients_that_has_ended_waits_for_nobody(tmp_path: Path) -> None:
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=2), stop_versions=1) as server:
        assert found(server) == ["The run waits for a client to enrol: start clients with an enrolment token"]
        peer = server.enrol()
        peer.send(peer.check_in(), ONES)
        server.admin.http.delete("/v1/clients/0")
        assert found(server) == []


def test_trouble_with_the_disk_and_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    with running(tmp_path / "server") as server:
        server.enrol()
        engine = server.service.engine
        monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=1_940_000_000))
        assert found(server) == ["The disk has 1.9 GB left: free space on it before it is full"]
        engine.publisher.problem = "version 7 cannot be made: no route to host"
        assert "no route to host" in found(server)[0]
        engine.log_writer._problem = "connection refused"
        assert found(server) == [
            "The log cannot be written, so clients wait (connection refused): look at its database and at the network"
        ]
        engine.disk.problem = "no space left on device"
        assert found(server) == [
            "The disk is full, so nothing new is taken in (no space left on device): free space on it"
        ]
        engine.log_writer._problem = engine.publisher.problem = engine.disk.problem = None


def silent(server: Served, client: int, hours: float) -> None:
    """Let a client's last request be so many hours ago."""
    server.service.engine.tally._of(client).last_seen = time.time() - 3600 * hours


def test_sites_that_took_work_and_fell_silent(tmp_path: Path) -> None:
    with running(tmp_path / "server", lease_seconds=0.2, clients=6) as server:
        peers = [server.enrol(name=f"site-{number}") for number in range(5)]
        assert all(peer.check_in() is not None for peer in peers[:4])
        visits = server.service.engine.coordinator.visits
        until(lambda: not any(visits.has_slot(client) for client in range(4)))
        silent(server, 4, 9)  # which had no work
        assert found(server) == []  # the leases have only just ended
        silent(server, 2, 3)
        (sentence,) = found(server)
        assert sentence.startswith("site-2 has been silent for 3 h: its lease ended at ")
        assert sentence.endswith(" UTC; look at its machine, or revoke it")
        silent(server, 0, 1)
        assert found(server) == [
            "site-2 and site-0 have been silent for 60 min or longer: look at their machines, or revoke them"
        ]
        silent(server, 1, 50)
        silent(server, 3, 49)
        assert found(server)[0].startswith("site-1, site-3, site-2 and 1 more sites have been silent for 60 min")
        for client in (0, 1, 3):
            server.admin.http.delete(f"/v1/clients/{client}")
        assert found(server)[0].startswith("site-2 has been silent")
        assert peers[2].check_in() is not None  # it is back
        assert found(server) == []


def hour_of(counted: int, unused: int, refused: dict[str, int]) -> LastHour:
    seen: dict[str, Any] = {"counts": {"counted": 100, "unused": 100}, "refused": {"norm-too-large": 100}}
    hour = LastHour(lambda: seen["counts"], lambda: seen["refused"])
    seen["counts"] = {"counted": 100 + counted, "unused": 100 + unused}
    seen["refused"] = {"norm-too-large": 100 + refused.pop("norm-too-large", 0), **refused}
    return hour


@pytest.mark.parametrize(
    ("counted", "unused", "refused", "sentence"),
    [
        (40, 60, {}, "60% of the updates of the last hour were refused, 60 of 100: most came too late; "),
        (40, 10, {"norm-too-large": 50},
         "60% of the updates of the last hour were refused, 60 of 100: most as norm-too-large; "),
        (40, 10, {"unknown-token": 500}, None),  # of a stranger, who sends no updates
        (41, 40, {}, None),
        (0, 9, {}, None),
    ],
)  # fmt: skip
def test_many_refused_updates(counted: int, unused: int, refused: dict[str, int], sentence: str | None) -> None:
    lines = list(module._of_refused_updates(hour_of(counted, unused, refused)))
    assert lines == [] if sentence is None else lines[0].startswith(sentence)


def test_the_last_hour_forgets_what_is_older() -> None:
    counts = {"counted": 0, "unused": 0}
    hour = LastHour(lambda: counts, dict)
    for minute in range(1, 200):
        counts = {"counted": 10 * minute, "unused": minute}
        hour.note()
    assert hour.counts() == (600, 60, {})


def test_refused_updates_of_a_real_client_are_counted(tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        peer = server.enrol()
        visit = peer.check_in()
        assert visit is not None
        for _ in range(12):
            assert peer.put(visit, body_of(NANS)).status_code == 422
        assert found(server) == [
            "100% of the updates of the last hour were refused, 12 of 12: most as not-finite; "
            "the sites' logs say what to do"
        ]


def engine_of(counts: list[int], limit: float, version: int, end: float) -> Any:
    participation = Participation(len(counts), limit=limit)
    participation._counts[:] = type(participation._counts)("q", counts)
    coordinator = SimpleNamespace(participation=participation, algorithm=SimpleNamespace(version=version))
    return SimpleNamespace(coordinator=coordinator, run=SimpleNamespace(is_finished=False, stop_versions=end))


@pytest.mark.parametrize(
    ("counts", "limit", "end", "sentences"),
    [
        ([5, 5, 5], 10, 40, []),  # each ends at 20 · 10 / 5 = 40, as the run
        ([5, 8, 10], 20, 51, ["The privacy budget of 2 of 3 clients is used up at version 40 (estimated): "]),
        ([5, 8, 20], 20, 40, ["The privacy budget of 1 of 3 clients is used up: "]),
        ([17, 1, 1], 20, math.inf, []),
        ([19, 1, 1], 20, math.inf, ["The privacy budget of 1 of 3 clients is used up at version 21 (estimated): "]),
        ([2, 2, 2], 10, 200, []),  # too few to estimate
        ([2, 2, 2], math.inf, 200, []),
    ],
)
def test_a_privacy_budget_that_ends_before_the_run(
    counts: list[int], limit: float, end: float, sentences: list[str]
) -> None:
    lines = list(module._of_the_budget(engine_of(counts, limit, version=20, end=end)))
    assert len(lines) == len(sentences)
    assert all(line.startswith(sentence) for line, sentence in zip(lines, sentences, strict=True))
