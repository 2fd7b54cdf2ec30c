"""The timer's sleeps, and the longest duration of a visit, which heartbeats do not extend."""

import asyncio
import math
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
import torch

from offbeat.algorithms import FedAvg, FedBuff
from offbeat.service.engine.lease_timer import LeaseTimer
from offbeat.service.engine.live_run import Alarm
from tests.service.conftest import LENGTH, running
from tests.service.http_client import until

ONES = torch.ones(LENGTH)


class Engine:
    """The parts of an engine that a timer uses, on a clock that moves as the timer sleeps."""

    def __init__(self, period, times, lapse_at=math.inf):
        self.times = iter(times)
        self.lapse_at, self.must_assign, self.assigned = lapse_at, False, 0
        self.client_evaluations = None
        self.calls, self.dues, self.slept = [], [], []
        self.lock = asyncio.Lock()
        self.coordinator = self.run = self.algorithm = self.alarm = self
        self.period, self.is_finished, self.is_paused, self.now = period, False, False, 0.0

    async def sleep(self, due, seconds):
        self.dues.append(due)
        self.slept.append(seconds)
        self.now = next(self.times, None)
        if self.now is None:
            raise asyncio.CancelledError

    def next_lapse(self):
        return self.lapse_at

    def lapse(self, now):
        self.calls.append(("lapse", now))
        self.lapse_at = math.inf

    def tick(self, now):
        self.calls.append(("tick", now))

    async def try_to_assign(self):
        self.must_assign = False
        self.assigned += 1


def calls_of(engine):
    with suppress(asyncio.CancelledError):
        asyncio.run(LeaseTimer(engine).run())
    return [call for call in engine.calls if call[0] == "tick" or engine.period is None]


def test_missed_periods_are_not_made_up_for():
    engine = Engine(10.0, [9.0, 10.0, 11.0, 45.0, 46.0, 49.0, 50.0])
    assert calls_of(engine) == [("tick", 10.0), ("tick", 45.0), ("tick", 50.0)]
    assert engine.assigned == 3
    assert engine.dues == [10.0, 10.0, 20.0, 20.0, 50.0, 50.0, 50.0, 60.0]


def test_leases_lapse_when_they_are_due_and_clients_get_the_free_slots():
    engine = Engine(None, [1.0, 2.0], lapse_at=2.0)
    assert calls_of(engine) == [("lapse", 2.0)]
    assert engine.assigned == 1


def test_a_failed_assignment_is_tried_again():
    engine = Engine(None, [1.0, 2.0])
    engine.must_assign = True
    calls_of(engine)
    assert engine.assigned == 1


def test_time_stands_still_for_a_finished_run():
    engine = Engine(10.0, [11.0, 12.0], lapse_at=1.0)
    engine.is_finished = True
    assert calls_of(engine) == []


def test_a_timer_sleeps_until_something_is_due_and_a_minute_at_most():
    engine = Engine(None, [1.0, 100.0, 139.0, 200.0], lapse_at=140.0)
    calls_of(engine)
    assert engine.dues == [140.0, 140.0, 140.0, 140.0, math.inf]
    assert engine.slept == [60.0, 60.0, 40.0, 1.0, 60.0]
    engine = Engine(None, [1.0])
    engine.client_evaluations = SimpleNamespace(ends=5.0, pass_time=lambda: None)
    calls_of(engine)
    assert engine.slept == [5.0, 4.0]


def sleeps_of(server, monkeypatch):
    """Return a list to which each sleep of the server's timer adds its seconds."""
    slept, sleep = [], Alarm.sleep

    async def counted(self, due, seconds):
        slept.append(seconds)
        await sleep(self, due, seconds)

    monkeypatch.setattr(Alarm, "sleep", counted)
    server.loop.call_soon_threadsafe(server.service.engine.run.alarm.ring)
    until(lambda: slept)
    return slept


def test_an_idle_server_has_a_sleeping_timer(tmp_path, monkeypatch):
    with running(tmp_path / "server", lease_seconds=600.0) as server:
        peer = server.enrol()
        assert peer.check_in() is not None
        slept = sleeps_of(server, monkeypatch)
        time.sleep(0.5)
        for _ in range(20):
            peer.check_in()
        assert len(slept) < 5


def test_a_lease_that_begins_during_a_sleep_lapses_in_time(tmp_path, monkeypatch):
    make = lambda: FedBuff(buffer_size=1, concurrency=1)  # noqa: E731
    with running(tmp_path / "server", make, lease_seconds=0.5) as server:
        slept = sleeps_of(server, monkeypatch)
        assert slept[-1] == 60.0
        assert server.enrol().check_in() is not None
        began = time.monotonic()
        assert server.enrol().check_in(20.0) is not None
        assert 0.3 < time.monotonic() - began < 5
        statistics = server.service.engine.coordinator.statistics
        assert (statistics.assigned, statistics.lost) == (2, 1)


def test_a_changed_system_time_moves_no_lease(tmp_path, monkeypatch):
    with running(tmp_path / "server", lease_seconds=600.0) as server:
        assert server.enrol().check_in() is not None
        now = time.time()
        for jump in (1e6, -1e6):
            monkeypatch.setattr(time, "time", lambda jump=jump: now + jump)
            server.loop.call_soon_threadsafe(server.service.engine.run.alarm.ring)
            time.sleep(0.2)
            assert server.service.status().lost == 0
            assert server.service.status().at_work == 1


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
    make, settings = lambda: FedBuff(buffer_size=1, concurrency=2), {"clients": 5, "lease_seconds": 0.8}
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
