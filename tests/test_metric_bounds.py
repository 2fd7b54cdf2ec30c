"""Bounds of metrics: of built-in ones, of the user's own, and in a run's folder."""

import math

import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat import simulate
from offbeat.metric_bounds import UNBOUNDED, bounds_of
from offbeat.report.metrics import measures_of
from offbeat.runs.directory import read


def half(outputs, labels):
    return 0.5


def bounded(bounds):
    def metric(outputs, labels):
        return 0.5

    metric.bounds = bounds
    return metric


def test_known_and_own_bounds():
    assert bounds_of("macro_f1", half) == (0, 1)
    assert bounds_of("half", half) == UNBOUNDED
    assert bounds_of("half", bounded([-1, math.inf])) == (-1, math.inf)


@pytest.mark.parametrize("bounds", [(1, 0), (0,), 1, "01", (0, math.nan), (0, None), {0, 1}, (False, 1)])
def test_wrong_bounds_are_refused(bounds):
    with pytest.raises(OffbeatError, match=r"the metric half: its attribute bounds must be two numbers"):
        bounds_of("half", bounded(bounds))


def run(**metrics):
    return simulate(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)),
        "digits",
        "fedbuff",
        population=20,
        local={"steps": 1, "batch_size": 5, "lr": 0.1},
        evaluate_every_versions=1,
        versions=1,
        metrics={"half": half, **metrics},
        progress=False,
    )


def test_a_run_records_the_bounds_of_its_own_metrics(tmp_path):
    path = run(kappa=bounded((-1, 1))).record.write(tmp_path, "a")
    plain, kappa, loss = measures_of(read(path))
    assert (plain.bounds, kappa.bounds, loss.bounds) == (UNBOUNDED, (-1, 1), (0, math.inf))
    assert kappa.write(0.9, 0.3) == "0.900 (0.600 to 1.00)"


def test_mistakes_in_bounds_are_one_line():
    with pytest.raises(OffbeatError, match=r"the metric wrong: its attribute bounds must be"):
        run(wrong=bounded((1, 1)))
    with pytest.raises(OffbeatError, match=r"the metric low is 0.5, outside its bounds, 0 to 0.1: correct them"):
        run(low=bounded((0, 0.1)))
