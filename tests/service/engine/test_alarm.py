"""A sleep ends when it is over, at a ring, and when something is due earlier; no ring is lost."""

import asyncio
import time

from offbeat.service.engine.alarm import Alarm


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
