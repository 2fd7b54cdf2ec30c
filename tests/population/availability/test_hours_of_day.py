import math

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.population.availability import HoursOfDay

H = 3600.0


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


def test_days_end_after_3000_years():
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


def test_a_client_without_hours():
    with pytest.raises(OffbeatError, match=r"^client 1 is available in no hour, but needs one$"):
        hours({1}, set())
