from pathlib import Path

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.report.metrics import Measure, main_measure, measures_of, target_for
from offbeat.runs.directory import Run

ACCURACY = Measure("accuracy", higher_is_better=True, is_share=True)
ERROR = Measure("error", higher_is_better=False, is_share=False)


def a_run(evaluate, columns=("accuracy", "loss"), name="a"):
    return Run(Path("runs") / name, name, 0, {"evaluate": evaluate}, dict.fromkeys(columns, np.zeros(1)), {}, 1.0)


def test_the_first_metric_is_the_main_measure_and_the_loss_comes_last():
    run = a_run({"metrics": ["/x/my.py:auc", "accuracy"], "better": "lower"}, ("loss", "accuracy", "auc"))
    auc, accuracy, loss = measures_of(run)
    assert auc == Measure("auc", higher_is_better=False, is_share=False)
    assert accuracy == ACCURACY
    assert loss == Measure("loss", higher_is_better=False, is_share=False)
    assert main_measure([run, run]) == auc


def test_of_the_training_loss_less_is_better_wherever_it_stands():
    run = a_run({"metrics": ["accuracy", "training_loss"]}, ("loss", "accuracy", "training_loss"))
    assert measures_of(run)[1] == Measure("training_loss", higher_is_better=False, is_share=False)


@pytest.mark.parametrize("evaluate", [{"metrics": []}, {"metrics": [], "better": "lower"}])
def test_without_metrics_it_is_the_loss(evaluate):
    (loss,) = measures_of(a_run(evaluate))
    assert (loss.name, loss.higher_is_better, loss.is_share) == ("loss", False, False)


def test_best_and_reached_follow_the_direction():
    values = np.array([0.5, np.nan, 0.2, 0.4])
    assert ACCURACY.best(values) == 0.5
    assert ERROR.best(values) == 0.2
    assert np.isnan(ERROR.best(np.array([np.nan, np.nan])))
    assert ACCURACY.reached(values, 0.4).tolist() == [True, False, False, True]
    assert ERROR.reached(values, 0.4).tolist() == [False, False, True, True]


def test_a_share_is_written_in_percent_and_others_are_plain():
    assert (ACCURACY.write(0.831, 0.004), ACCURACY.at(0.985)) == ("83.1 ± 0.4 %", "98.5 %")
    assert (ERROR.write(0.4532), ERROR.at(0.5)) == ("0.453", "error 0.5")
    assert Measure("balanced_error", higher_is_better=False, is_share=False).at(2) == "balanced error 2"


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"metrics": []}, r"runs/a \(accuracy, higher is better\) with runs/b \(loss, lower is better\)"),
        ({"metrics": ["accuracy"], "better": "lower"}, r"with runs/b \(accuracy, lower is better\)"),
    ],
)
def test_runs_that_disagree_cannot_be_compared(other, says):
    with pytest.raises(OffbeatError, match=says):
        main_measure([a_run({"metrics": ["accuracy"]}), a_run(other, name="b")])


@pytest.mark.parametrize(
    ("evaluate", "says"),
    [
        ({"metrics": "accuracy"}, "evaluate.metrics must be a list"),
        ({"metrics": [3]}, "evaluate.metrics must be a list"),
        (7, "evaluate.metrics must be a list"),
        ({"metrics": ["accuracy"], "better": "more"}, "must be 'higher' or 'lower', got 'more'"),
        ({"metrics": ["auc"]}, "the history has no column 'auc'"),
    ],
)
def test_a_broken_configuration_is_one_line(evaluate, says):
    with pytest.raises(OffbeatError, match=says):
        measures_of(a_run(evaluate))


def test_the_target_is_the_users_or_that_of_the_runs():
    without, eighty, ninety = ({"metrics": ["accuracy"], **t} for t in ({}, {"target": 0.8}, {"target": 0.9}))
    assert target_for([a_run(without)]) is None
    assert target_for([a_run(without), a_run(eighty), a_run(eighty)]) == 0.8
    assert target_for([a_run(eighty), a_run(ninety)], 0.7) == 0.7
    assert target_for([a_run({"metrics": [], "target": 0})]) == 0.0
    with pytest.raises(OffbeatError, match=r"different targets, 0\.8, 0\.9: choose one with --target"):
        target_for([a_run(eighty), a_run(ninety)])


@pytest.mark.parametrize("target", [80, -0.1, float("nan"), float("inf")])
def test_a_target_that_the_measure_cannot_have(target):
    with pytest.raises(OffbeatError, match=r"between 0 and 1, for instance 0.8 for 80 %"):
        target_for([a_run({"metrics": ["accuracy"]})], target)
    loss = a_run({"metrics": []})
    if np.isfinite(target):
        assert target_for([loss], target) == target
    else:
        with pytest.raises(OffbeatError, match="a finite number"):
            target_for([loss], target)


@pytest.mark.parametrize("target", ["high", True, [1], float("nan")])
def test_a_target_that_is_not_a_number_is_ignored(target):
    assert target_for([a_run({"metrics": ["accuracy"], "target": target})]) is None
