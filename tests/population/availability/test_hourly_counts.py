import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.population.availability import quietest_hours

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
