import json
import math

import numpy as np
import pytest

from offbeat.report.page.numbers import short, thinned


def test_few_points_are_all_kept():
    assert thinned(5, 5).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("number", [101, 1000, 10**6])
def test_many_points_keep_both_ends_and_leave_no_wide_gap(number):
    chosen = thinned(number, 100)
    assert len(chosen) <= 100
    assert (chosen[0], chosen[-1]) == (0, number - 1)
    assert np.diff(chosen).max() <= number / 49 + 1


def test_the_beginning_is_dense_enough_for_a_logarithmic_axis():
    chosen = thinned(10**6, 100)
    decades = np.histogram(np.log10(chosen + 1), bins=range(7))[0]
    assert decades.min() >= 5


def test_numbers_are_short_and_gaps_are_null():
    values = short([1 / 3, 2.0, math.nan, math.inf, 123456.7, 1e-9 / 3])
    assert json.dumps(values) == "[0.33333, 2, null, null, 123460, 3.3333e-10]"
