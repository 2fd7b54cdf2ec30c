"""The longest duration of a visit: heartbeats do not extend it."""

import asyncio
import math
import time
from contextlib import suppress

import pytest
import torch

from offbeat.algorithms import FedAvg, FedBuff
from offbeat.service.engine import lease_timer
from offbeat.service.engine.lease_timer import LeaseTimer
from tests.service.conftest import LENGTH, running

ONES = torch.ones(LENGTH)


class Engine:
    """The parts of an engine that a timer uses, on a clock that moves with each look."""

    def __init__(self, period, times, lapse_at=math.inf):
        self.times = iter(times)
        self.lapse_at, self.must_assign, self.assigned = lapse_at, False, 0
        self.client_evaluations = None
        self.calls = []
        self.lock = asyncio.Lock()
        self.coordinator = self.run = self.algorithm = self
        self.period, self.is_finished, self.now = period, False, 0.0

    def next_lapse(self):
        self.now = next(self.times, None)
        if self.now is None:
            raise asyncio.CancelledError
        return self.lapse_at

    def lapse(self, now):
        self.calls.append(("lapse", now))

    def tick(self, now):
        self.calls.append(("tick", now))

    async def try_to_assign(self):
        self.must_assign = False
        self.assigned += 1


def calls_of(engine, monkeypatch):
    async def sleep(_):
        pass

    monkeypatch.setattr(lease_timer.asyncio, "sleep", sleep)
    with suppress(asyncio.CancelledError):
        asyncio.run(LeaseTimer(engine).run())
    return [call for call in engine.calls if call[0] == "tick" or engine.period is None]


def test_missed_periods_are_not_made_up_for(monkeypatch):
    engine = Engine(10.0, [9.0, 10.0, 11.0, 45.0, 46.0, 49.0, 50.0])
    assert calls_of(engine, monkeypatch) == [("tick", 10.0), ("tick", 45.0), ("tick", 50.0)]
    assert engine.assigned == 3


def test_leases_lapse_when_they_are_due_and_clients_get_the_free_slots(monkeypatch):
    engine = Engine(None, [1.0, 2.0], lapse_at=2.0)
    assert calls_of(engine, monkeypatch) == [("lapse", 2.0)]
    assert engine.assigned == 1


def test_a_failed_assignment_is_tried_again(monkeypatch):
    engine = Engine(None, [1.0, 2.0])
    engine.must_assign = True
    calls_of(engine, monkeypatch)
    assert engine.assigned == 1


def test_time_stands_still_for_a_finished_run(monkeypatch):
    engine = Engine(10.0, [11.0, 12.0], lapse_at=1.0)
    engine.is_finished = True
    assert calls_of(engine, monkeypatch) == []


def beat(peer, visit):
    answer = peer.http.post(f"/v1/visits/{visit['number']}/heartbeat")
    assert answer.status_code == 200, answer.text


def starve(peer, idle, seconds):
    """Let idle clients check in and send heartbeats, and return when another client gets work."""
    begun, visits = time.monotonic(), {}
    while time.monotonic() - begun < seconds:
        for number, other in enumerate(idle):
            visits[number] = other.check_in() or visits.get(number)
            if visits[number]:
                beat(other, visits[number])
        if (visit := peer.check_in(0.2)) is not None:
            return visit
    return None


@pytest.mark.parametrize("lease_seconds", [None, 0.4])
@pytest.mark.parametrize(
    "make", [lambda: FedBuff(buffer_size=1, concurrency=2), lambda: FedAvg(cohort=2)], ids=["fedbuff", "fedavg"]
)
def test_idle_clients_of_one_enrolment_token_do_not_starve_others(make, lease_seconds, tmp_path):
    settings = {"clients": 5, "lease_seconds": lease_seconds}
    with running(tmp_path / "server", make, max_visit_seconds=0.6, **settings) as server:
        idle = [server.enrol() for _ in range(4)]
        for client in idle[:2]:
            assert client.check_in() is not None
        visit = starve(server.enrol(), idle, 20.0)
        assert visit is not None


def test_without_a_longest_duration_heartbeats_keep_a_slot(tmp_path):
    make, settings = lambda: FedBuff(buffer_size=1, concurrency=2), {"clients": 5, "lease_seconds": 0.4}
    with running(tmp_path / "server", make, max_visit_seconds=math.inf, **settings) as server:
        idle = [server.enrol() for _ in range(4)]
        assert all(client.check_in() for client in idle[:2])
        assert starve(server.enrol(), idle, 2.0) is None


def test_an_update_that_comes_after_the_longest_duration_counts_while_it_is_wanted(tmp_path):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=2), max_visit_seconds=0.3) as server:
        peer = server.enrol()
        visit = peer.check_in()
        time.sleep(0.6)
        assert server.service.engine.coordinator.statistics.lost == 1
        assert peer.send(visit, ONES)["counted"]
