import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.population.availability import HoursOfDay, QuietHours, quiet_starts, quietest_hours

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


def test_a_window_that_is_too_short_is_refused():
    with pytest.raises(OffbeatError, match=r"hours is 1e-07, but must be at least a millisecond"):
        QuietHours(np.array([0.0]), 1e-7)


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


def hours(*clients):
    """Return the availability of clients with these hours."""
    return HoursOfDay(np.array([[hour in mine for hour in range(24)] for mine in clients]))


@pytest.mark.parametrize(
    ("client", "seconds", "there", "away"),
    [
        (0, 0.0, 2 * H, 4 * H),  # 2, 3 and 9
        (0, 2.5 * H, 2.5 * H, 4 * H),
        (0, 4 * H, 9 * H, 10 * H),
        (0, 10 * H, 26 * H, 28 * H),
        (0, (240 + 9) * H, (240 + 9) * H, (240 + 10) * H),
        (1, 0.0, 0.0, 2 * H),  # 22, 23, 0 and 1: one stay, past midnight
        (1, 2 * H, 22 * H, 26 * H),
        (1, 22.5 * H, 22.5 * H, 26 * H),
        (1, 24 * H, 24 * H, 26 * H),
        (2, 0.0, 1 * H, 24 * H),  # all but 0
    ],
)
def test_stays(client, seconds, there, away):
    found = hours({2, 3, 9}, {22, 23, 0, 1}, set(range(1, 24)))
    assert found.next_available(client, seconds) == there
    assert found.next_offline(client, there) == away


def test_all_hours_are_always():
    found = hours({5}, set(range(24)))
    assert (found.next_available(1, 1e12), found.next_offline(1, 0.0)) == (1e12, math.inf)


def test_days_of_hours_end_after_3000_years():
    # 10¹¹ seconds are 1,157,407 days and 9.8 hours.
    found = hours({8, 9, 10}, {8}, {10})
    assert found.next_offline(0, 1e11 - 1) == 1e11
    assert [found.next_available(client, 1e11 - 1) for client in (1, 2)] == [math.inf, math.inf]
    assert found.next_available(0, 1e11) == math.inf


@pytest.mark.parametrize(
    ("mine", "middle"),
    [
        (range(2, 10), 6.0),
        ([22, 23, 0, 1, 2, 3, 4, 5], 2.0),
        ([23, 0], 0.0),
        ([7], 7.5),
        ([1, 5, 6, 12], 6.0),  # the longest
        ([3, 4, 10, 11, 18, 19], 4.0),  # the first of the longest
        ([10, 11, 23, 0], 11.0),  # one that begins at 23 is the last
        (range(24), 12.0),
    ],
)
def test_the_middle_of_the_longest_stay(mine, middle):
    assert hours({0}, set(mine)).middle_hours.tolist() == [0.5, middle]


HEADER = "client,hour,count\n"


def rows(client, counts):
    return "".join(f"{client},{hour},{count}\n" for hour, count in enumerate(counts))


@pytest.fixture
def quiet(tmp_path):
    """Return a function that says which hours are each client's quietest, from the rows of a file."""

    def find(content, clients=1, hours=8):
        path = tmp_path / "hours.csv"
        path.write_text(HEADER + content)
        return [np.flatnonzero(row).tolist() for row in quietest_hours(path, clients, hours)]

    return find


def test_the_eight_lowest_counts_of_each_client(quiet):
    night = [1, 0, 0, 0, 0, 2, 3, 4, *[9] * 16]
    mixed = [9] * 24
    for hour in (23, 20, 14, 13, 5, 4, 2, 11):
        mixed[hour] = 8.5
    assert quiet(rows(1, mixed) + rows(0, night), 2) == [[0, 1, 2, 3, 4, 5, 6, 7], [2, 4, 5, 11, 13, 14, 20, 23]]


def test_hours_without_a_row_are_quiet_and_rows_on_the_same_hour_add_up(quiet):
    assert quiet("".join(f"0,{hour},1\n" for hour in range(22)), hours=2) == [[22, 23]]
    # Each row has fewer than hour 1's, but together hour 0's have more.
    assert quiet(rows(0, [3, 5] + [9] * 22) + "0,0,3\n", hours=1) == [[1]]


@given(st.lists(st.integers(0, 3), min_size=24, max_size=24), st.integers(1, 24))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_hour_that_is_left_out_is_quieter(quiet, counts, hours):
    (found,) = quiet(rows(0, counts), hours=hours)
    assert len(found) == hours
    left = [hour for hour in range(24) if hour not in found]
    # As (count, hour), so that of equal counts the earlier one is first.
    if left:
        assert max((counts[hour], hour) for hour in found) < min((counts[hour], hour) for hour in left)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("0,1,2\n2,1,2\n", "row 3: client is 2, but the 2 clients are 0 … 1"),
        ("0,24,2\n", "row 2: hour is 24, but the hours of a day are 0 … 23"),
        ("0,1,-2\n", "row 2: count is -2.0, but must be finite and at least 0"),
        ("0,1,nan\n", "row 2: count is nan"),
        ("0,1,inf\n", "row 2: count is inf"),
        ("0,1,2\n", r"hours\.csv has no row on client 1: give each client's hourly counts"),
    ],
)
def test_wrong_rows_are_refused(quiet, content, reason):
    with pytest.raises(OffbeatError, match=reason):
        quiet(content, 2)
