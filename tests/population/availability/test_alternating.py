import math

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.population.availability import Alternating


@pytest.mark.parametrize(
    ("client", "seconds", "there", "away"),
    [
        (0, 0.0, 0.0, 10.0),  # group 0: [0, 10), [30, 40), …
        (0, 9.5, 9.5, 10.0),
        (0, 10.0, 30.0, 40.0),
        (1, 0.0, 20.0, 30.0),  # group 2
        (1, 30.0, 50.0, 60.0),
        (2, 0.0, 10.0, 20.0),  # group 1
        (2, 3000.0, 3010.0, 3020.0),
    ],
)
def test_groups_take_turns(client, seconds, there, away):
    turns = Alternating(3, 10.0, np.array([0, 2, 1]))
    assert turns.next_available(client, seconds) == there
    assert turns.next_offline(client, there) == away


def test_the_turn_of_a_time_is_found_where_the_quotient_is_rounded():
    turns = Alternating(2, 0.1, np.array([0, 1]))
    for k in range(2_000):
        boundary = k * 0.1
        assert turns.next_available(k % 2, boundary) == boundary
        assert turns.next_available((k + 1) % 2, boundary) == (k + 1) * 0.1


def test_one_group_is_always_available():
    turns = Alternating(1, 10.0, np.array([0]))
    assert (turns.next_available(0, 1e12), turns.next_offline(0, 15.0)) == (1e12, math.inf)


def test_turns_end_after_3000_years():
    turns = Alternating(2, 10.0, np.array([0, 1]))
    assert turns.next_offline(1, 1e11 - 1) == 1e11
    assert turns.next_available(0, 1e11 - 1) == math.inf
    assert turns.next_available(0, 1e11) == math.inf
    assert Alternating(2, 1e12, np.array([0])).next_offline(0, 5.0) == 1e11


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1.0, np.array([0])), "groups is 0, but must be at least 1"),
        ((2, 0.0, np.array([0])), "period_seconds is 0.0, but must be finite and at least 0.001"),
        ((2, 1.0, np.array([0, 2])), "client 1 is in group 2, but groups are 0 … 1"),
        ((2, 1.0, np.array([-1])), "client 0 is in group -1"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(OffbeatError, match=message):
        Alternating(*arguments)
