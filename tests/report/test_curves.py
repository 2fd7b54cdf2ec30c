import math

import numpy as np
import pytest

from offbeat.report.curves import cost_axis, mean_curve, measure_title, seed_curve, together
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


@pytest.mark.parametrize("seeds", [1, 3])
def test_few_seeds_have_no_interval(seeds):
    few = mean_curve([curve(1.0, 2.0 + seed) for seed in range(seeds)], LOSS)
    assert few.mean.tolist() == [1, 1.5 + seeds / 2]
    assert np.isnan([few.low, few.high]).all()


def test_the_interval_of_a_share_stays_between_0_and_100_percent():
    ends = [curve(10.0, 5.0), curve(10.0, 50.0), curve(10.0, 99.0), curve(10.0, 86.0)]
    share, other = mean_curve(ends, ACCURACY), mean_curve(ends, LOSS)
    assert share.mean[1] == other.mean[1] == pytest.approx(60)
    assert 0 <= share.low[1] < share.mean[1] < share.high[1] <= 100
    assert other.low[1] < 0
    assert other.high[1] > 100
    assert (share.low[0], share.high[0]) == pytest.approx((10, 10))  # the seeds agree


def test_an_axis_has_a_unit_for_all_runs():
    runs = [a_run("a"), a_run("b", seconds=(0.0, 7200.0))]
    axis = cost_axis("seconds", runs)
    assert (axis.title, axis.unit, axis.end) == ("virtual time (minutes)", 60, 120)
    axis = cost_axis("bytes", [a_run(totals={"bytes_down": 3000, "bytes_up": 500})])
    assert (axis.title, axis.unit, axis.end) == ("sent to and by all clients (kB)", 1000, 3.5)
    assert cost_axis("updates", runs).end == 3  # counted, unused and lost


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("accuracy", "test accuracy"),
        ("my_metric", "test my metric"),
        ("loss", "test loss"),
        ("training_loss", "training loss"),
        ("client_accuracy", "accuracy on clients, by examples"),
        ("client_accuracy_worst", "accuracy on clients, worst tenth"),
        ("client_my_metric_p10", "my metric on clients, 10th percentile"),
    ],
)
def test_the_title_of_a_measure_says_on_which_examples(name, title):
    assert measure_title(Measure(name, higher_is_better=True, is_share=False)) == title
