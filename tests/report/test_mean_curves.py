import math

import numpy as np
import pytest

from offbeat.report.mean_curves import mean_curve, seed_curve, together
from offbeat.report.metrics import Measure
from tests.report.example_runs import a_run

ACCURACY, LOSS = Measure("accuracy", True, True), Measure("loss", False, False)


def curve(*ys, xs=(0.0, 1.0)):
    return np.array(xs), np.array(ys)


def test_a_seed_has_percent_over_a_unit_and_gaps_where_it_diverged():
    xs, ys = seed_curve(a_run(values=(0.1, math.inf, 0.5)), ACCURACY, "seconds", 60.0)
    np.testing.assert_allclose(xs, [0, 100 / 60, 200 / 60])
    np.testing.assert_allclose(ys, [10, math.nan, 50])


def test_the_mean_is_where_all_seeds_are():
    xs, values = together([curve(0.0, 4.0, xs=(0.0, 4.0)), curve(1.0, 2.0, xs=(1.0, 3.0))])
    assert xs.tolist() == [1, 3]
    assert values.tolist() == [[1, 3], [1, 2]]


def test_there_is_no_mean_where_a_seed_ended_before_another_began():
    apart = [curve(1.0, 2.0, xs=(0.0, 10.0)), curve(1.0, 2.0, xs=(20.0, 30.0))]
    xs, values = together(apart)
    assert (xs.shape, values.shape) == ((0,), (2, 0))
    mean = mean_curve(apart, ACCURACY)
    assert [len(numbers) for numbers in (mean.xs, mean.mean, mean.low, mean.high)] == [0] * 4


def test_one_seed_has_no_interval():
    one = mean_curve([curve(1.0, 2.0)], LOSS)
    assert one.mean.tolist() == [1, 2]
    assert np.isnan([one.low, one.high]).all()


def test_the_interval_of_a_share_stays_between_0_and_100_percent():
    ends = [curve(10.0, 5.0), curve(10.0, 50.0), curve(10.0, 99.0)]
    share, other = mean_curve(ends, ACCURACY), mean_curve(ends, LOSS)
    assert share.mean[1] == other.mean[1] == pytest.approx(154 / 3)
    assert 0 <= share.low[1] < share.mean[1] < share.high[1] <= 100
    assert other.low[1] < 0
    assert other.high[1] > 100
    assert (share.low[0], share.high[0]) == pytest.approx((10, 10))  # the seeds agree
