import json
import math

import numpy as np
import pytest

from offbeat.report.page.curve_data import curve_data, short, spends_privacy, thinned
from tests.report.example_runs import a_run, client_run


def test_each_seed_has_its_costs_and_its_measures():
    evaluate = {"metrics": ["accuracy", "training_loss"], "target": 0.5}
    runs = [a_run("a", 3, seconds=(0, 60), evaluate=evaluate), a_run("b", seconds=(0, 600), evaluate=evaluate)]
    data = curve_data(runs, 0.5)
    assert data["axes"][0]["title"] == "virtual time (minutes)"
    assert not any(axis["hours"] for axis in data["axes"])
    assert [axis["key"] for axis in data["axes"]] == ["seconds", "updates", "bytes", "versions"]
    assert [(m["key"], m["title"], m["share"], m["target"]) for m in data["measures"]] == [
        ("accuracy", "test accuracy", True, 50),
        ("training_loss", "training loss", False, None),
        ("loss", "test loss", False, None),
    ]
    first, second = data["seeds"]
    assert (first["label"], first["seed"], second["label"]) == (0, 3, 1)
    assert first["x"] == {"seconds": [0, 1], "updates": [0, 3], "bytes": [0, 2], "versions": [0, 1]}
    assert first["y"] == {"accuracy": [10, 50], "training_loss": [0.25, 0.25], "loss": [1, 1]}
    assert second["x"]["seconds"] == [0, 10]
    assert data["means"] == []  # of one seed


def test_hours_are_told_from_other_units():
    axes = curve_data([a_run("a", seconds=(0, 86400))], None)["axes"]
    assert [axis["hours"] for axis in axes] == [True, False, False, False]


def test_the_mean_of_the_seeds_and_its_interval_which_stays_a_share():
    runs = [a_run("a", seed, (0.1, value)) for seed, value in enumerate((0.1, 0.5, 0.99, 0.53))]
    (mean,) = [one for one in curve_data(runs, None)["means"] if one["axis"] == "versions"]
    assert mean["x"] == [0, 1]
    assert mean["y"]["accuracy"] == [10, 53]
    assert mean["low"]["accuracy"][1] >= 0
    assert mean["high"]["accuracy"][1] <= 100
    assert mean["low"]["loss"] == [1, 1]


def test_only_runs_that_spend_privacy_are_over_epsilon():
    private = a_run("private", columns={"epsilon": [0.0, 1.5]})
    masked = a_run("masked", columns={"epsilon": [0.0, math.inf]})
    assert [spends_privacy(run) for run in (private, masked, a_run())] == [True, False, False]
    data = curve_data([private, masked], None)
    assert [seed["x"].get("epsilon") for seed in data["seeds"]] == [[0, 1.5], None]
    assert "epsilon" not in [axis["key"] for axis in curve_data([masked], None)["axes"]]
    mixed = [private, a_run("private", 1, columns={"epsilon": [0.0, math.inf]})]
    assert "epsilon" not in [mean["axis"] for mean in curve_data(mixed, None)["means"]]


def test_the_statistics_over_clients_are_measures_too():
    data = curve_data([client_run("a"), a_run("b")], None)
    titles = {measure["key"]: measure["title"] for measure in data["measures"]}
    assert titles["client_accuracy_worst"] == "accuracy on clients, worst tenth"
    assert "client_loss" not in titles  # not in these histories
    assert data["seeds"][0]["y"]["client_accuracy_worst"] == [5, 10, 15]
    assert data["seeds"][1]["y"]["client_accuracy_worst"] == [None, None]


def test_runs_with_many_evaluations_give_a_small_page_that_says_so():
    number = 100_000
    runs = [
        a_run(label, seed, [0.1 + 0.8 * i / number for i in range(number)]) for label in ("a", "b") for seed in range(3)
    ]
    data = curve_data(runs, None)
    assert len(json.dumps(data)) < 2_000_000
    assert data["note"] == "Drawn: at most 500 of up to 100,000 evaluations of a run."
    seed = data["seeds"][0]
    assert (seed["x"]["versions"][-1], seed["y"]["accuracy"][-1]) == (99_999, pytest.approx(90, abs=0.01))


def test_many_runs_share_the_room_of_a_page():
    runs = [a_run(f"label{place}", seed, [0.1] * 400) for place in range(40) for seed in range(5)]
    assert len(json.dumps(curve_data(runs, None))) < 8_000_000


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
