import math

import numpy as np
import pytest

from offbeat.population.availability import Intervals


@pytest.fixture
def intervals() -> Intervals:
    """Clients 0 and 2 mixed; two of client 2's intervals touch; 1 and 3 have none."""
    rows = [(2, 5.0, 10.0), (0, 1.0, 2.0), (2, 10.0, 12.0), (0, 4.0, 4.5), (2, 20.0, 21.0)]
    client, start, end = zip(*rows, strict=True)
    return Intervals(4, np.array(client), np.array(start), np.array(end))


@pytest.mark.parametrize(
    ("client", "seconds", "there", "away"),
    [
        (0, 0.0, 1.0, 2.0),
        (0, 1.5, 1.5, 2.0),
        (0, 2.0, 4.0, 4.5),
        (2, 0.0, 5.0, 12.0),
        (2, 10.0, 10.0, 12.0),
        (2, 11.0, 11.0, 12.0),
        (2, 12.0, 20.0, 21.0),
    ],
)
def test_intervals(intervals, client, seconds, there, away):
    assert intervals.next_available(client, seconds) == there
    assert intervals.next_offline(client, there) == away


@pytest.mark.parametrize(("client", "seconds"), [(0, 4.5), (1, 0.0), (2, 21.0), (3, 0.0), (3, 1e9)])
def test_never_again(intervals, client, seconds):
    assert intervals.next_available(client, seconds) == math.inf


def test_touching_intervals_of_two_clients_do_not_merge():
    intervals = Intervals(2, np.array([0, 1]), np.array([0.0, 1.0]), np.array([1.0, 2.0]))
    assert intervals.next_offline(0, 0.0) == 1.0
    assert intervals.next_available(1, 0.0) == 1.0
