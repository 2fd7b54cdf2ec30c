import math

import numpy as np

from offbeat.report.client_panels import client_panels, measured_by_clients
from offbeat.report.metrics import main_measure
from tests.report.example_runs import a_run, client_run, draw


def lines_of(axes):
    return {line.get_linestyle(): line.get_xydata().tolist() for line in axes.lines}


def test_mean_worst_tenth_and_band():
    runs = [client_run("a"), client_run("b", client_accuracy_mean=[0.0, 0.0, 0.25])]
    first, second = draw(client_panels(runs, main_measure(runs))).axes
    assert [axes.get_title(loc="left") for axes in (first, second)] == ["a", "b"]
    np.testing.assert_allclose(lines_of(first)["-"], [[0, 20], [10, 40], [20, 60]])
    np.testing.assert_allclose(lines_of(first)[":"], [[0, 5], [10, 10], [20, 15]])
    np.testing.assert_allclose(lines_of(second)["-"], [[0, 0], [10, 0], [20, 25]])
    (band,) = first.collections
    points = band.get_paths()[0].vertices
    assert sorted({round(y) for x, y in points if x == 10}) == [20, 60]
    assert second.get_xlabel() == "virtual time (minutes)"


def test_seeds_are_averaged():
    runs = [client_run(seed=0), client_run(seed=1, client_accuracy_mean=[0.4, 0.4, 0.4])]
    (axes,) = draw(client_panels(runs, main_measure(runs))).axes
    np.testing.assert_allclose(lines_of(axes)["-"], [[0, 30], [10, 40], [20, 50]])


def test_seeds_that_never_overlap_have_no_mean():
    first = {f"client_accuracy_{name}": [0.1, math.nan, math.nan] for name in ("mean", "p10", "p90", "worst")}
    last = {f"client_accuracy_{name}": [math.nan, 0.2, 0.3] for name in ("mean", "p10", "p90", "worst")}
    runs = [client_run(seed=0, **first), client_run(seed=1, **last)]
    (axes,) = draw(client_panels(runs, main_measure(runs))).axes
    assert lines_of(axes) == {"-": [], ":": []}


def test_times_without_available_clients_are_bridged():
    gaps = {f"client_accuracy_{name}": [0.1, math.nan, 0.3] for name in ("mean", "p10", "p90", "worst")}
    runs = [client_run(**gaps)]
    (axes,) = draw(client_panels(runs, main_measure(runs))).axes
    np.testing.assert_allclose(lines_of(axes)["-"], [[0, 10], [20, 30]])


def test_runs_whose_clients_have_measured():
    never = client_run("never", client_accuracy_mean=[math.nan] * 3)
    runs = [a_run("b"), client_run(), never]
    assert [run.label for run in measured_by_clients(runs, main_measure(runs))] == ["a"]
