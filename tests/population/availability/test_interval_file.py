import math

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.population.availability import intervals_from_file

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
