"""Properties of every kind of availability."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.population.availability import Alternating, Always, Bernoulli, HoursOfDay, Intervals, QuietHours
from offbeat.population.availability.protocol import check_period, period_of

PERIODS = st.sampled_from([1e-3, 0.1, 1 / 3, 1.0, 86_400.0, 1e9, 1e300]) | st.floats(1e-3, 1e6)
HOURS = st.sampled_from([24.0, math.nextafter(24, 0), 1e-6, 8.0, 23.9999]) | st.floats(1e-6, 24)
STARTS = st.sampled_from([0.0, math.nextafter(86_400, 0), 86_399.9999, 50.0 * 3600, 1e300]) | st.floats(0, 2e5)


@st.composite
def lists(draw):
    """Client 0 has some of these intervals, which may touch; client 1 has one."""
    bounds = sorted(draw(st.sets(st.floats(0, 1e300) | st.integers(0, 9).map(float), min_size=2, max_size=9)))
    keep = draw(st.lists(st.booleans(), min_size=len(bounds) - 1, max_size=len(bounds) - 1))
    rows = [(0, a, b) for a, b, kept in zip(bounds, bounds[1:], keep, strict=False) if kept] + [(1, 2.0, 3.0)]
    client, start, end = zip(*rows, strict=True)
    return Intervals(2, np.array(client), np.array(start), np.array(end)), bounds


@st.composite
def cases(draw):
    """An availability of two clients and a time, often one at which something happens, or right next to one."""
    times = st.floats(0, 1e300) | st.floats(0, 1e6)
    kind = draw(st.sampled_from([Always, Alternating, Bernoulli, QuietHours, HoursOfDay, Intervals]))
    if kind is Always:
        availability = Always()
    elif kind is Intervals:
        availability, bounds = draw(lists())
        times |= st.sampled_from(bounds)
    elif kind is HoursOfDay:
        there = draw(st.lists(st.sets(st.integers(0, 23), min_size=1), min_size=2, max_size=2))
        availability = HoursOfDay(np.array([[hour in mine for hour in range(24)] for mine in there]))
        times |= (st.integers(0, 27_777_777) | st.integers(0, 50)).map(lambda hour: hour * 3600.0)
    else:
        k = draw(st.integers(0, 10**13) | st.integers(0, 10))
        if kind is QuietHours:
            start, hours, period = draw(STARTS), draw(HOURS), 86_400.0
            availability = QuietHours(np.array([start, start]), hours)
            times |= st.sampled_from([k * period + start % period, k * period + (start % period + hours * 3600)])
        else:
            period = draw(PERIODS)
            if kind is Alternating:
                groups = draw(st.integers(2, 5))
                availability = Alternating(groups, period, np.array([0, groups - 1]))
            else:
                probability = draw(st.sampled_from([0.05, 0.5, 0.95, 1.0]))
                availability = Bernoulli(probability, period, draw(st.integers(0, 9)))
            times |= st.sampled_from([k * period, (k + 1) * period])
    time = draw(times | st.floats(1e11 - 100, 1e11 + 100))
    time = draw(st.sampled_from([time, math.nextafter(time, 0), math.nextafter(time, math.inf)]))
    assume(time < math.inf)
    return availability, time, draw(st.integers(0, 1)), draw(st.floats(0, 1))


@given(cases())
def test_every_kind_at_every_time(case):
    availability, time, client, part = case
    for _ in range(3):
        there = availability.next_available(client, time)
        assert there >= time
        assert type(there) is float
        if there == math.inf:
            return
        assert availability.next_available(client, there) == there
        if there > time:  # away all the time before
            between = min(time + part * (there - time), math.nextafter(there, 0))
            assert availability.next_available(client, between) == there
            assert availability.next_available(client, math.nextafter(there, 0)) == there
        away = availability.next_offline(client, there)
        assert away > there
        assert type(away) is float
        if away == math.inf:
            assert availability.next_available(client, there * 2 + 1) == there * 2 + 1
            return
        for between in (there + part * (away - there), math.nextafter(away, 0)):  # there all the time before
            if there <= between < away:
                assert availability.next_available(client, between) == between
                assert availability.next_offline(client, between) == away
        assert availability.next_available(client, away) > away
        time = away


@pytest.mark.parametrize("start", [0.0, 115_740 * 86_400.0])
def test_a_long_run_of_days_does_not_drift(start):
    availability, time = QuietHours(np.array([0.1]), 8.0), start
    for _ in range(1000):
        there = availability.next_available(0, time)
        time = availability.next_offline(0, there)
    day = start // 86_400 + 999
    assert there == day * 86_400 + 0.1
    assert time == day * 86_400 + 0.1 + 8 * 3600


def test_always():
    assert Always().next_available(7, 2.5) == 2.5
    assert Always().next_offline(7, 2.5) == math.inf


SOME_PERIODS = st.sampled_from([1e-3, 0.1, 1 / 3, 86_400.0]) | st.floats(1e-3, 1e6)


@given(SOME_PERIODS, st.integers(0, 10**13), st.sampled_from([0.0, 0.1, 5.5]))
def test_a_period_contains_its_start_and_not_its_end(period, k, start):
    begin, end = k * period + start, (k + 1) * period + start
    assume(end < 1e11)
    assert period_of(begin, period, start) == k
    assert period_of(math.nextafter(end, 0), period, start) == k
    assert period_of(end, period, start) == k + 1


def test_a_time_before_the_first_period():
    assert period_of(1.0, 10.0, start=3.0) == -1


@pytest.mark.parametrize("seconds", [9e-4, math.nan, math.inf])
def test_periods_out_of_range(seconds):
    with pytest.raises(OffbeatError, match=rf"^day is {seconds}, but must be finite and at least 0.001$"):
        check_period("day", seconds)
    check_period("day", 1e-3)
