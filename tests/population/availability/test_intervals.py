import math

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.population.availability import Intervals, intervals_from_file


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


HEADER = "client,start_seconds,end_seconds\n"


def test_reads_the_intervals(tmp_path):
    path = tmp_path / "there.csv"
    path.write_text(HEADER + "2,5,10\n0,1,2.5\n\n2,10,12\n")
    intervals = intervals_from_file(path, 4)
    assert (intervals.next_available(2, 0.0), intervals.next_offline(2, 5.0)) == (5, 12)
    assert (intervals.next_available(0, 0.0), intervals.next_offline(0, 1.0)) == (1, 2.5)
    assert intervals.next_available(1, 0.0) == intervals.next_available(3, 0.0) == math.inf
    assert type(intervals.next_available(2, 0.0)) is float
    assert intervals_from_file(str(path), 3).next_available(2, 6.0) == 6


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("0,1,2\n4,1,2\n", "row 3: client is 4, but the 4 clients are 0 … 3"),
        ("0,1,2\n1,-0.5,2\n", "row 3: start_seconds is -0.5, but must be at least 0"),
        ("0,nan,2\n", "row 2: start_seconds is nan"),
        ("0,1,nan\n", "row 2: end_seconds is nan"),
        ("0,1,inf\n", "row 2: end_seconds is inf"),
        ("0,1,2\n0,5,5\n", "row 3: end_seconds is 5.0, but must be finite and above start_seconds, 5.0"),
        ("1,9,10\n0,5,7\n1,1,2\n", "row 4: client 1's interval begins before its last one ends"),
        ("1,9,10\n1,1,2\n0,5,7\n", "row 3: client 1's interval begins"),
        ("1,9,12\n1,11,15\n", "row 3: client 1's interval begins"),
        ("0,1,x\n", "row 2: end_seconds must be a number of seconds, not 'x'"),
        ("0.5,1,2\n", "row 2: client must be a whole number, not '0.5'"),
        ("", r"intervals\.csv has no rows: no client would ever be available"),
    ],
)
def test_wrong_rows_are_refused(tmp_path, rows, reason):
    path = tmp_path / "intervals.csv"
    path.write_text(HEADER + rows)
    with pytest.raises(OffbeatError, match=reason):
        intervals_from_file(path, 4)
