import io
import math
import tomllib
from functools import partial
from pathlib import Path

import pytest
import tomli_w
from offbeat_core.errors import OffbeatError
from rich.console import Console

from offbeat.config.experiment_file import load
from offbeat.report.collect import collect
from offbeat.runs.directory import lock_folder
from offbeat.runs.progress import Progress
from offbeat.runs.run_all import check_runs, run_all
from offbeat.sweeps.result import best_trials, write_best
from offbeat.sweeps.sweep import Sweep

LR = "local.lr=0.01:1:log"


@pytest.fixture
def file(tmp_path, tiny):
    path = tmp_path / "tiny.toml"
    path.write_text(tomli_w.dumps(tiny | {"seeds": [1, 2], "trainer": "loop"}), encoding="utf-8")
    return path


@pytest.fixture
def sweep(file, overs):
    """Return a function that makes a sweep over the small experiment."""

    def make(*texts, trials=4, labels=("fedbuff",), changes=()):
        return Sweep.of(file, changes, overs(*texts), list(labels), trials)

    return make


@pytest.fixture
def carry_out(tmp_path):
    """Return a function that carries out a sweep, and returns its trials and its output."""

    def run(sweep, folder="out", **how):
        screen = io.StringIO()
        display = partial(Progress, Console(file=screen), sweep.experiment.stop, "accuracy")
        return sweep.carry_out(tmp_path / folder, display, **how), screen.getvalue()

    return run


def runs_of(files, folder):
    """Return all files but Optuna's, which holds times."""
    return {name: content for name, content in files(folder).items() if name != "optuna.journal"}


def test_each_algorithm_has_as_many_trials(sweep, carry_out, tmp_path):
    done, screen = carry_out(sweep(LR, labels=("fedavg", "fedbuff"), trials=3))
    assert {label: [trial.number for trial in own] for label, own in done.items()} == {
        "fedavg": [0, 1, 2], "fedbuff": [0, 1, 2],
    }  # fmt: skip
    assert [trial.point for trial in done["fedavg"]] == [trial.point for trial in done["fedbuff"]]
    assert screen.count(", seed 1: ") == screen.count(", seed 2: ") == 6
    runs = collect([tmp_path / "out"])
    assert {run.label for run in runs} == {f"{label} {n}" for label in ("fedavg", "fedbuff") for n in range(3)}
    for trial in done["fedbuff"]:
        own = [run for run in runs if run.label == f"fedbuff {trial.number}"]
        assert [run.config["local"]["lr"] for run in own] == [trial.point["local.lr"]] * 2
        assert trial.value == pytest.approx(sum(run.history["accuracy"].mean() for run in own) / 2)


def test_it_resumes_and_goes_on_for_more_trials(sweep, carry_out, files, tmp_path):
    whole, _ = carry_out(sweep(LR, trials=4), "whole")
    carry_out(sweep(LR, trials=2))
    # As if a kill had come in the second trial's runs.
    folder = tmp_path / "out" / "fedbuff 1-seed2"
    folder.rename(folder.with_name(".gone"))
    done, screen = carry_out(sweep(LR, trials=4))
    assert done == whole
    assert "3 of 4 runs are finished" in screen
    assert screen.count("fedbuff 1, seed 2: ") == 1
    assert "fedbuff 0, seed 1: " not in screen
    folder.with_name(".gone").rename(tmp_path / "gone")
    assert runs_of(files, tmp_path / "out") == runs_of(files, tmp_path / "whole")
    again, screen = carry_out(sweep(LR, trials=3))
    assert again["fedbuff"] == whole["fedbuff"][:3]
    assert "seed 1: " not in screen


def test_processes_run_the_same_trials(sweep, carry_out, files, tmp_path):
    # The first ten trials do not depend on the results of others, so a batch of two has those of two batches.
    one, _ = carry_out(sweep(LR, trials=3), "one")
    two, _ = carry_out(sweep(LR, trials=3), "two", jobs=2)
    assert one == two
    assert runs_of(files, tmp_path / "one") == runs_of(files, tmp_path / "two")


def test_a_fresh_one_forgets_all(sweep, carry_out, tmp_path):
    carry_out(sweep(LR, trials=3))
    with pytest.raises(OffbeatError, match=r"holds a sweep over local.lr=0.01:1:log: .* replace it with --fresh$"):
        carry_out(sweep("local.lr=0.1,0.2"))
    done, _ = carry_out(sweep("local.lr=0.1,0.2"), fresh=True)
    assert [trial.point for trial in done["fedbuff"]] == [{"local.lr": 0.1}, {"local.lr": 0.2}]
    assert {run.label for run in collect([tmp_path / "out"])} == {"fedbuff 0", "fedbuff 1"}


def test_without_optuna_nothing_is_removed(sweep, carry_out, files, tmp_path, monkeypatch):
    carry_out(sweep("local.lr=0.1,0.2"))
    before = files(tmp_path / "out")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(OffbeatError, match="needs Optuna"):
        carry_out(sweep("local.lr=0.1,0.2"), fresh=True)
    assert files(tmp_path / "out") == before


def test_a_changed_file_is_refused(sweep, carry_out):
    carry_out(sweep("local.lr=0.1,0.2"))
    with pytest.raises(OffbeatError, match="other settings: choose another folder with --output, or replace it"):
        carry_out(sweep("local.lr=0.1,0.2", changes=["local.steps=4"]))


def test_two_do_not_share_a_folder(sweep, carry_out, tmp_path):
    says = "another run is writing into"
    with lock_folder(tmp_path / "out", ".sweep.lock"), pytest.raises(OffbeatError, match=says):
        carry_out(sweep(LR))


@pytest.mark.parametrize(
    ("texts", "label", "says"),
    [
        (("algorithms.fedavg.cohort=1:50",), "fedavg", r"^algorithms.fedavg: cohort must be at most .* 20, got 50$"),
        (("local.momentum=0:0.9", "local.mu=0:1"), "fedbuff", "momentum"),  # they do not go together
    ],
)
def test_what_cannot_run_is_found_before_the_first_trial(texts, label, says, sweep, carry_out, tmp_path):
    with pytest.raises(OffbeatError, match=says):
        carry_out(sweep(*texts, labels=(label,)))
    assert not list((tmp_path / "out").iterdir())


def test_trials_of_masks_need_a_metric_by_name(carry_out, overs):
    path = Path(__file__).parents[2] / "examples" / "segmentation" / "experiment.toml"
    changes = ["data.arguments.train_examples=60", "stop.updates=10"]
    masks = Sweep.of(path, changes, overs("local.lr=0.1:0.2"), ["fedavg"], 2)
    with pytest.raises(OffbeatError, match=r"^evaluate.metrics: name the metric .* for these labels it would be iou$"):
        carry_out(masks)


def test_all_trials_have_one_trainer(sweep, carry_out, digits, tmp_path):
    # Batches suit the longer visits only.
    changes = ["model={ name = 'mlp', hidden = [500] }", "trainer='auto'", "stop.virtual_seconds=20", "seeds=[1]"]
    both = sweep("local.steps=1,9", changes=changes)
    alone = [load(both.path, [*changes, f"local.steps={steps}"]) for steps in (1, 9)]
    assert [check_runs(one, ["fedbuff"], digits, pytest.fail).trainer for one in alone] == ["loop", "vmap"]
    carry_out(both)
    assert [run.config["trainer"] for run in collect([tmp_path / "out"])] == ["loop", "loop"]


def test_what_is_implausible_is_said_once(sweep, carry_out, tmp_path):
    (tmp_path / "trace.csv").write_text("client,start_seconds,end_seconds\n3,0,100\n", encoding="utf-8")
    trace = f"population.availability={{ name = 'intervals', path = '{tmp_path / 'trace.csv'}' }}"
    changes = [trace, "server.lease_seconds=60", "stop.virtual_seconds=5", "seeds=[1]"]
    _, screen = carry_out(sweep(LR, trials=2, changes=changes))
    assert screen.count("19 of 20 clients are never available") == 1


def test_a_trial_that_diverges_is_the_worst(sweep, carry_out, tmp_path):
    wanted = sweep("local.lr=0.1,1e30", changes=["model={ name = 'mlp', hidden = [4] }"])
    done, _ = carry_out(wanted)
    good, bad = done["fedbuff"]
    assert good.score > bad.score == -math.inf
    assert best_trials(done) == {"fedbuff": good}
    with pytest.raises(OffbeatError, match=r"^every trial of fedbuff diverged: choose other values$"):
        best_trials({"fedbuff": [bad]})


def test_the_best_settings_are_an_experiment_that_gives_the_trials_numbers(sweep, carry_out, tmp_path):
    wanted = sweep(LR, "algorithms.fedbuff.buffer_size=1:3", trials=3)
    done, _ = carry_out(wanted)
    best = best_trials(done)
    path = write_best(wanted, best, tmp_path / "out")
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    assert table["name"] == "tiny-best"
    assert table["algorithms"]["fedavg"] == {"cohort": 4}
    here = load(path)
    runs = run_all(here, ["fedbuff"], tmp_path / "best", Progress(Console(file=io.StringIO()), here.stop, "accuracy"))
    values = [run.history["accuracy"][-10:].mean() for run in runs]
    assert sum(values) / 2 == pytest.approx(best["fedbuff"].value, abs=1e-12)
    assert best["fedbuff"].value == max(trial.value for trial in done["fedbuff"])
