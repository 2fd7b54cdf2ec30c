import math

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.population.availability import QuietHours, quiet_starts

H = 3600.0


@pytest.mark.parametrize(
    ("client", "seconds", "there", "away"),
    [
        (0, 0.0, 2 * H, 10 * H),  # from 2 to 10
        (0, 5 * H, 5 * H, 10 * H),
        (0, 10 * H, 26 * H, 34 * H),
        (1, 0.0, 0.0, 6 * H),  # from 22 to 6 of the next day: yesterday's window is still open
        (1, 6 * H, 22 * H, 30 * H),
        (1, 25 * H, 25 * H, 30 * H),
        (2, 0.0, 0.0, 6 * H),  # the same, called 46: whole days do not matter
        (3, 0.0, 0.0, 8 * H),
        (3, 24 * H, 24 * H, 32 * H),
    ],
)
def test_windows(client, seconds, there, away):
    quiet = QuietHours(np.array([2 * H, 22 * H, 46 * H, 0.0]), 8.0)
    assert quiet.next_available(client, seconds) == there
    assert quiet.next_offline(client, there) == away


def test_the_middle_of_a_window_may_be_after_midnight():
    quiet = QuietHours(np.array([2 * H, 22 * H, 46 * H, 20 * H, 6.5 * H]), 8.0)
    assert quiet.middle_hours.tolist() == [6.0, 2.0, 2.0, 0.0, 10.5]


def test_a_day_of_another_length():
    quiet = QuietHours(np.array([100.0]), 0.5, day_seconds=2 * H)
    assert quiet.next_available(0, 0.0) == 100.0
    assert quiet.next_offline(0, 100.0) == 1900.0
    assert quiet.next_available(0, 1900.0) == 100.0 + 2 * H


@pytest.mark.parametrize("hours", [24.0, math.nextafter(24.0, 0)])
def test_a_whole_day_is_always(hours):
    quiet = QuietHours(np.array([7 * H]), hours)
    assert quiet.next_available(0, 1e12) == 1e12
    assert quiet.next_offline(0, 0.0) == math.inf


def test_days_end_after_3000_years():
    quiet = QuietHours(np.array([0.0]), 23.0)
    assert quiet.next_available(0, 1e11) == math.inf
    # 10¹¹ seconds are 1,157,407 days and 9.8 hours, in the middle of a window.
    assert quiet.next_offline(0, 1e11 - 1) == 1e11


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0], 0.0), "hours is 0.0, but must be at least a millisecond and at most a day, 24 hours"),
        (([0.0], 24.1), "hours is 24.1"),
        (([0.0], 2.0, 3600.0), "at most a day, 1 hours"),
        (([0.0], 1.0, math.inf), "day_seconds is inf"),
        (([0.0, -1.0], 8.0), "client 1 starts at -1.0 seconds, but must start at 0 or later"),
        (([math.inf], 8.0), "client 0 starts at inf"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    starts, *rest = arguments
    with pytest.raises(OffbeatError, match=message):
        QuietHours(np.array(starts), *rest)


def test_starts_are_spread_evenly():
    starts = quiet_starts(20_000, 22.0, 6.0, 4)
    assert starts.min() >= 22 * H
    assert starts.max() < 28 * H
    assert starts.mean() == pytest.approx(25 * H, abs=4 * 6 * H / math.sqrt(12 * 20_000))
    counts = np.histogram(starts, 6, (22 * H, 28 * H))[0]
    np.testing.assert_allclose(counts, 20_000 / 6, atol=4 * math.sqrt(20_000 / 6))
    np.testing.assert_array_equal(starts[:100], quiet_starts(100, 22.0, 6.0, 4))
    assert not np.isin(starts, quiet_starts(100, 22.0, 6.0, 5)).any()
    assert quiet_starts(3, 1.5, 0.0, 0).tolist() == [1.5 * H] * 3


@pytest.mark.parametrize(
    ("first", "spread", "message"),
    [(-1.0, 1.0, "first_hour is -1.0"), (math.nan, 1.0, "first_hour"), (1.0, math.inf, "spread_hours is inf")],
)
def test_starts_out_of_range(first, spread, message):
    with pytest.raises(OffbeatError, match=message):
        quiet_starts(3, first, spread, 0)
