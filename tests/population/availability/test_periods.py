import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.population.availability.periods import check_period, period_of

PERIODS = st.sampled_from([1e-3, 0.1, 1 / 3, 86_400.0]) | st.floats(1e-3, 1e6)


@given(PERIODS, st.integers(0, 10**13), st.sampled_from([0.0, 0.1, 5.5]))
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
