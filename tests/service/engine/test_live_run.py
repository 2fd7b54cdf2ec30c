import asyncio
import time

import torch

from offbeat.algorithms import FedAsync
from offbeat.coordinator import Coordinator
from offbeat.service.engine.live_run import Alarm, LiveRun
from tests.service.conftest import LENGTH, PLAN


def coordinator(algorithm, clients=3):
    return Coordinator(algorithm, torch.zeros(LENGTH), clients=clients, local=PLAN, seed=7)


def visit(run, client):
    run.coordinator.present(run.now, client)
    (assignment,) = run.coordinator.assign(run.now)
    return assignment


def hand_in(run, client):
    run.coordinator.receive(run.now, client, 0, torch.ones(LENGTH), examples=1, steps=2, normaliser=2.0)


def test_the_time_without_a_server_does_not_count():
    seconds = 1000.0
    run = LiveRun(coordinator(FedAsync()), now=30.0, clock=lambda: seconds)
    assert run.now == 30.0
    seconds += 2.5
    assert run.now == 32.5


def test_a_run_ends_at_its_version():
    run = LiveRun(coordinator(FedAsync(concurrency=1)), stop_versions=1)
    assert not run.is_finished
    visit(run, 0)
    hand_in(run, 0)
    assert run.is_finished
    assert not LiveRun(run.coordinator).is_finished


def test_versions_of_open_visits_and_the_newest_are_needed():
    run = LiveRun(coordinator(FedAsync(concurrency=2)))
    assert run.needed_versions() == {0}
    visit(run, 0), visit(run, 1)
    hand_in(run, 0)
    assert run.needed_versions() == {0, 1}
    run.coordinator.drop(run.now, 1, 0)  # its update may come, but needs no base
    assert run.needed_versions() == {1}


def slept(*, seconds, during=lambda alarm: None, before=lambda alarm: None):
    """Return how long a sleep until the run's second 10 lasts."""

    async def sleep():
        alarm = Alarm()
        before(alarm)
        asyncio.get_running_loop().call_later(0.05, during, alarm)
        began = time.monotonic()
        await alarm.sleep(10.0, seconds)
        return time.monotonic() - began

    return asyncio.run(sleep())


def test_a_sleep_lasts_until_its_time():
    assert 0.2 <= slept(seconds=0.2) < 2
    assert slept(seconds=0.2, during=lambda alarm: alarm.expect(10.0)) >= 0.2


def test_a_ring_or_an_earlier_time_ends_the_sleep():
    assert slept(seconds=20, during=Alarm.ring) < 2
    assert slept(seconds=20, during=lambda alarm: alarm.expect(9.9)) < 2


def test_a_ring_before_the_sleep_is_not_lost_but_rings_once():
    async def twice():
        alarm = Alarm()
        alarm.ring()
        began = time.monotonic()
        await alarm.sleep(10.0, 20)
        assert time.monotonic() - began < 2
        await alarm.sleep(10.0, 0.1)
        return time.monotonic() - began

    assert asyncio.run(twice()) >= 0.1


def test_a_timer_that_is_awake_expects_nothing_earlier():
    assert slept(seconds=0.1, before=lambda alarm: alarm.expect(-5.0)) >= 0.1
