import csv
import io
import math
import tomllib
from dataclasses import replace

import pytest
import tomli_w
from rich.console import Console

from offbeat.config.experiment_file import load
from offbeat.sweeps import result
from offbeat.sweeps.sweep import Sweep
from offbeat.sweeps.trials import Trial


@pytest.fixture
def sweep(tmp_path, tiny, overs):
    def make(*texts, trials=20, **changes):
        (tmp_path / "tiny.toml").write_text(tomli_w.dumps({**tiny, **changes}), encoding="utf-8")
        return Sweep.of(tmp_path / "tiny.toml", [], overs(*texts), [], trials)

    return make


def trials(label, *values, key="local.lr"):
    """Return a trial for each value, at 0.1, 0.2, …"""
    points = [{key: round(0.1 + 0.1 * number, 1)} for number in range(len(values))]
    scores = [value if math.isfinite(value) else -math.inf for value in values]
    return [Trial(label, n, points[n], values[n], scores[n]) for n in range(len(values))]


def test_the_best_come_first_and_equal_ones_in_order():
    numbers = [trial.number for trial in result.best_first(trials("a", 0.5, 0.7, math.nan, 0.7))]
    assert numbers == [1, 3, 0, 2]


def test_tables_show_the_ten_best_of_each_algorithm(sweep):
    screen = io.StringIO()
    found = {"fedavg": trials("fedavg", 0.25, math.nan), "fedbuff": trials("fedbuff", *(n / 100 for n in range(12)))}
    for table in result.tables(sweep("local.lr=0.1:2").searched, found):
        Console(file=screen, width=100).print(table)
    first, second = screen.getvalue().split("fedbuff")
    rows = [line.split() for line in first.splitlines() if line.split()]
    assert ["Trial", "local.lr", "accuracy"] in rows
    assert rows[-2:] == [["0", "0.1", "25.0", "%"], ["1", "0.2", "diverged"]]
    assert second.count(" %") == 10
    assert "11.0 %" in second
    assert "1.0 %" not in second.replace("11.0 %", "")


@pytest.mark.parametrize(
    ("texts", "changes", "words"),
    [
        (
            ["local.lr=0.1:2"],
            {},
            "20 trials of fedavg, fedasync, fedbuff, an equal budget per algorithm, by the mean of the last 10 "
            "evaluations of accuracy over seed 1 (higher is better)",
        ),
        (
            ["algorithms.fedbuff.server_lr=0.1:2"],
            {"seeds": [1, 2]},
            "20 trials of fedbuff, by the mean of the last 10 evaluations of accuracy over seeds 1, 2 "
            "(higher is better)",
        ),
        (
            ["algorithms.fedbuff.server_lr=0.1:2", "algorithms.fedavg.cohort=1:3"],
            {"evaluate": {"every_seconds": 20.0, "metrics": []}},
            "3 trials of fedavg (all combinations), 20 trials of fedbuff, by the mean of the last 10 evaluations of "
            "loss over seed 1 (lower is better)",
        ),
    ],
)
def test_the_budget_is_stated(texts, changes, words, sweep):
    assert result.budget(sweep(*texts, **changes).searched) == words


def test_the_csv_has_all_trials(sweep, tmp_path):
    found = {
        "fedavg": trials("fedavg", 0.25, math.nan),
        "fedbuff": [Trial("fedbuff", 0, {"staleness": {"name": "hinge"}}, 0.5, 0.5)],
    }
    wanted = sweep(
        "algorithms.fedavg.local.lr=0.1,0.2", "algorithms.fedbuff.staleness={name='constant'},{name='hinge'}"
    )
    path = result.write_csv(wanted.searched, found, tmp_path)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["label", "trial", "local.lr", "staleness", "mean_of_last_10_accuracy"],
        ["fedavg", "0", "0.1", "", "0.25"],
        ["fedavg", "1", "0.2", "", ""],
        ["fedbuff", "0", "", '{ name = "hinge" }', "0.5"],
    ]


def test_with_a_target_the_csv_has_the_time_to_it(sweep, tmp_path):
    searched = replace(sweep("algorithms.fedavg.local.lr=0.1,0.2").searched, target=0.5)
    missed, reached = trials("fedavg", 0.25, 0.75)
    found = {"fedavg": [replace(missed, score=-0.25), replace(reached, score=0.1, seconds=9.0)]}
    lines = result.write_csv(searched, found, tmp_path).read_text(encoding="utf-8").splitlines()
    assert lines == [
        "label,trial,local.lr,mean_of_last_10_accuracy,seconds_to_0.5",
        "fedavg,1,0.2,0.75,9.0",
        "fedavg,0,0.1,0.25,",
    ]


def test_settings_can_be_pasted(tiny):
    best = {"fedbuff": Trial("fedbuff", 0, {"server_lr": 0.5, "local.lr": 1.0}, 0.5, 0.5)}
    assert tomllib.loads(result.settings(best)) == {"algorithms": {"fedbuff": {"server_lr": 0.5, "local": {"lr": 1.0}}}}


def test_the_best_file_lies_in_another_folder_than_the_users_code(sweep, tmp_path):
    (tmp_path / "net.py").write_text("import torch\n\ndef make(): return torch.nn.Linear(64, 10)\n")
    wanted = sweep("local.lr=0.1,0.2", model={"name": "net.py:make"}, name="a name")
    path = result.write_best(wanted, {"fedbuff": trials("fedbuff", 0.5)[0]}, tmp_path / "below" / "out")
    best = load(path)
    assert best.model.name == f"{tmp_path / 'net.py'}:make"
    assert best.name == "a name-best"
    assert best.plan("fedbuff").lr == best.plan("fedavg").lr == 0.1
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first == f"# The best of {result.budget(wanted.searched)}."
    for label in ("fedavg", "fedbuff", "fedasync"):
        expected = wanted.experiment.resolved(label, 1, "digits") | {"name": "a name-best"}
        assert best.resolved(label, 1, "digits") == expected
