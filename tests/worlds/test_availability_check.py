"""Implausible availability of clients."""

import math

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.population.availability import Always, Intervals
from offbeat.worlds.availability_check import availability_warnings, check_first_client, looked_at

DAY = 86_400.0
UNIX = 1.7e9
ADVICE = "seconds since the start of the run; subtract the first time"


@pytest.fixture
def intervals():
    """Builds an availability from a list of (start, end) for each client."""

    def build(*of_clients):
        rows = [(client, *interval) for client, times in enumerate(of_clients) for interval in times]
        client, start, end = zip(*rows, strict=True)
        return Intervals(len(of_clients), np.array(client), np.array(start, float), np.array(end, float))

    return build


def warned(availability, clients, *, local_seconds=1.0, end_seconds=math.inf):
    return availability_warnings(availability, np.full(clients, local_seconds), end_seconds)


def test_plausible_clients_cause_neither_error_nor_warning(intervals):
    for availability in (Always(), intervals([(0, 50)], [(70, 90)])):
        check_first_client(availability, 2, 60)
        assert warned(availability, 2) == []


@pytest.mark.parametrize(("unit", "first"), [(1, "1700000000"), (1000, "1.7e\\+12")], ids=["seconds", "milliseconds"])
def test_unix_time_is_refused_with_the_remedy(intervals, unit, first):
    availability = intervals([(UNIX * unit, (UNIX + 60) * unit)], [((UNIX + 9) * unit, (UNIX + 70) * unit)])
    with pytest.raises(OffbeatError, match=rf"available within 365 d; the first one comes after {first} .*{ADVICE}"):
        check_first_client(availability, 2, math.inf)


def test_clients_that_come_after_the_end_are_refused(intervals):
    availability = intervals([(61, 70)], [(60, 70)])
    check_first_client(availability, 2, 60)
    with pytest.raises(OffbeatError, match=r"no client is available within 59\.0 s; the first one comes after 60 "):
        check_first_client(availability, 2, 59)


def test_clients_that_never_come_are_refused(intervals):
    with pytest.raises(OffbeatError, match=r"^population\.availability: no client is ever available$"):
        check_first_client(intervals([], [(0, 1)]), 1, math.inf)


def test_clients_in_another_clock_are_named(intervals):
    now, later = [(0, 50)], [(UNIX, UNIX + 50)]
    assert warned(intervals(later, later, now, [(1.5, 9)]), 4) == [
        "2 of 4 clients are never available within 365 d: 0, 1."
    ]
    assert warned(intervals(now, []), 2) == ["1 of 2 clients is never available within 365 d: 1."]
    assert warned(intervals(now, [(1001, 1010)]), 2, end_seconds=1000.0) == [
        "1 of 2 clients is never available within 16 min 40 s: 1."
    ]


def test_at_most_ten_are_named(intervals):
    assert warned(intervals([(0, 50)], *12 * [[]]), 13) == [
        "12 of 13 clients are never available within 365 d: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …."
    ]


def test_a_trace_that_begins_after_days_causes_a_warning(intervals):
    (line,) = warned(intervals([(4 * DAY, 5 * DAY)]), 1)
    assert line.startswith("No client is available in the first 4 d: ")
    assert ADVICE in line


def test_stays_shorter_than_the_local_steps_cause_a_warning(intervals):
    hours = intervals([(0, 2.0)], [(1.0, 2.5)])
    (line,) = warned(hours, 2, local_seconds=2.5)
    assert line.startswith("No client is available long enough for its local steps when it first comes, 2 seconds at")
    assert warned(hours, 2, local_seconds=2.0) == []


def test_up_to_a_thousand_clients_are_looked_at_in_blocks():
    assert looked_at(1000).tolist() == list(range(1000))
    some = looked_at(10_000)
    assert len(set(some.tolist())) == 1000
    assert some[:100].tolist() == list(range(100))
    assert some[-100:].tolist() == list(range(9900, 10_000))
