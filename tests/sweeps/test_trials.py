import math
from pathlib import Path

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.runs.directory import Run
from offbeat.sweeps.trials import at_point, best_of, in_words, score_of, trial_of, trials_experiment


def run(**history):
    columns = {name: np.array(values) for name, values in history.items()}
    return Run(Path("a"), "a 0", 1, {}, columns, {}, 0.0)


def test_the_value_is_the_mean_of_the_last_ten_and_of_the_seeds(experiment):
    here = experiment()
    long, short = run(accuracy=[0.9] * 5 + [0.1, 0.3] * 5), run(accuracy=[0.2, 0.4])
    trial = trial_of(here, "a", 3, {}, [long, short])
    assert (trial.label, trial.number) == ("a", 3)
    assert trial.value == trial.score == pytest.approx((0.2 + 0.3) / 2)


@pytest.mark.parametrize(
    ("changes", "history", "score"),
    [
        (["evaluate.metrics=[]"], {"loss": [2.0, 1.0]}, -1.5),
        (["evaluate.metrics=['mse', 'accuracy']"], {"mse": [2.0, 1.0], "accuracy": [0.0, 0.0]}, -1.5),
        (["evaluate.better='lower'"], {"accuracy": [0.5]}, -0.5),
        ([], {"accuracy": [0.5, math.nan]}, -math.inf),
    ],
)
def test_a_higher_score_is_better(changes, history, score, experiment):
    changes = [*changes, "evaluate.target=0.1"] if changes else changes
    assert trial_of(experiment(*changes), "a", 0, {}, [run(**history)]).score == score


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_with_a_target_those_that_reach_it_sooner_come_first(better, experiment):
    sign = 1 if better == "higher" else -1
    here = experiment(f"evaluate.better={better}")
    histories = {
        "early": [0.0, 0.9, 0.1],
        "as early, but worse": [0.0, 0.8, 0.1],
        "late": [0.0, 0.1, 0.9],
        "near": [0.0, 0.4, 0.4],
        "far": [0.0, 0.1, 0.1],
        "diverged": [0.0, 0.9, math.nan],
    }
    trials = {
        name: trial_of(
            here, "a", 0, {}, [run(accuracy=[sign * v for v in values], seconds=[0.0, 10.0, 20.0])], sign * 0.5
        )
        for name, values in reversed(histories.items())
    }
    assert sorted(trials, key=lambda name: -trials[name].score) == list(histories)
    assert {name: trial.seconds for name, trial in trials.items()} == {
        "early": 10.0, "as early, but worse": 10.0, "late": 20.0, "near": None, "far": None, "diverged": None,
    }  # fmt: skip


def test_scores():
    assert score_of(2.0, higher_is_better=True) == 2.0
    assert score_of(2.0, higher_is_better=False) == -2.0
    assert score_of(math.inf, higher_is_better=False) == score_of(math.inf, higher_is_better=True) == -math.inf
    assert best_of([1.0, 3.0, -math.inf, 3.0]) == 1


def test_a_point_changes_the_algorithms_own_table(tiny):
    tiny["local"]["compression"] = {"name": "top_k", "share": 0.1}
    tiny["algorithms"]["fedbuff"]["local"] = {"steps": 7}
    point = {"server_lr": 0.5, "local.lr": 1.0, "local.compression.share": 0.2, "privacy.clip_norm": 3.0}
    assert at_point(tiny, "fedbuff", point) == {
        "buffer_size": 2,
        "concurrency": 4,
        "server_lr": 0.5,
        "local": {"steps": 7, "lr": 1.0, "compression": {"name": "top_k", "share": 0.2}},
        "privacy": {"clip_norm": 3.0},
    }
    assert tiny["local"]["compression"]["share"] == 0.1
    assert tiny["algorithms"]["fedbuff"]["local"] == {"steps": 7}
    with pytest.raises(OffbeatError, match=r"^algorithms.fedbuff.buffer_size.x: buffer_size is a value, not a table$"):
        at_point(tiny, "fedbuff", {"buffer_size.x": 1})


def test_each_trial_is_an_algorithm(tiny):
    points = {"fedbuff": {3: {"server_lr": 0.5}, 4: {"server_lr": 2.0}}, "fedavg": {3: {"local.lr": 1.0}}}
    here = trials_experiment(tiny, points, Path("tiny.toml"), {"seeds": [5]})
    assert list(here.algorithms) == ["fedbuff 3", "fedbuff 4", "fedavg 3"]
    assert here.seeds == (5,)
    assert here.algorithm("fedbuff 4").server_lr == 2.0
    assert here.algorithm("fedbuff 4").buffer_size == 2
    assert (here.plan("fedavg 3").lr, here.plan("fedbuff 3").lr) == (1.0, 0.1)


def test_a_point_in_words():
    assert (
        in_words({"server_lr": 0.5, "staleness": {"name": "hinge"}})
        == 'server_lr = 0.5, staleness = { name = "hinge" }'
    )
