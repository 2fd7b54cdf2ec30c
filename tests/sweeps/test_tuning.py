import io
from functools import partial

import pytest
import tomli_w
from offbeat_core.errors import OffbeatError
from rich.console import Console

from offbeat.config.experiment_file import load
from offbeat.report.collect import collect
from offbeat.report.finding import finding
from offbeat.report.summary import summarise
from offbeat.report.tuning import ReportedTuning
from offbeat.runs.progress import Progress
from offbeat.runs.run_all import run_all
from offbeat.runs.tuning_record import read_tuning, tuning_of
from offbeat.sweeps.tuning import Tuning


@pytest.fixture
def file(tmp_path, tiny):
    path = tmp_path / "tiny.toml"
    path.write_text(tomli_w.dumps(tiny | {"seeds": [1, 2], "trainer": "loop"}), encoding="utf-8")
    return path


@pytest.fixture
def tune(file, overs, tmp_path):
    """Return a function that tunes; it returns the experiment at the best settings, and the output."""

    def run(*changes, trials=3, labels=("fedavg", "fedbuff"), over=(), **how):
        tuning = Tuning.of(file, ["stop.virtual_seconds=20", *changes], overs(*over), list(labels), trials)
        screen = io.StringIO()
        display = partial(Progress, Console(file=screen), tuning.sweep.experiment.stop, "accuracy")
        return tuning.carry_out(tmp_path / "out", display, **how), screen.getvalue()

    return run


def display(experiment):
    return Progress(Console(file=io.StringIO()), experiment.stop, "accuracy")


def values(experiment, label, keys):
    resolved = experiment.resolved(label, 1, "digits")
    tables = {"local": resolved["local"], **resolved["algorithms"][label]}
    return {key: tables["local"]["lr"] if key == "local.lr" else tables[key] for key in keys}


def test_trials_see_a_validation_part_and_another_seed_and_the_best_are_compared(tune, file, tmp_path):
    best, screen = tune()
    trials = collect([tmp_path / "out" / "tuning"])
    assert {run.label for run in trials} == {f"{label} {n}" for label in ("fedavg", "fedbuff") for n in range(3)}
    assert {run.seed for run in trials} == {1_000_000}
    assert {run.config["data"]["validation"] for run in trials} == {0.2}
    assert {run.config["stop"]["virtual_seconds"] for run in trials} == {10.0}
    assert "fedbuff 2: " in screen

    untuned = load(file)
    record = read_tuning(tmp_path / "out")
    assert record is not None
    for label in ("fedavg", "fedbuff"):
        own = {run.label: run for run in trials if run.label.startswith(label)}
        means = [run.history["accuracy"][-10:].mean() for _, run in sorted(own.items())]
        tuned = record.labels[label]
        assert tuned.untuned is not None
        assert tuned.best is not None
        assert tuned.untuned.value == pytest.approx(means[0])
        assert (tuned.best.number, tuned.best.value) == (means.index(max(means)), pytest.approx(max(means)))
        keys = [setting.key for setting in tuned.settings if setting.key != "staleness.a"]
        first = own[f"{label} 0"].config
        assert first["local"] == untuned.resolved(label, 1, "digits")["local"]
        assert {s.key: s.untuned for s in tuned.settings if s.key in keys} == values(untuned, label, keys)
        assert {s.key: s.best for s in tuned.settings if s.key in keys} == values(best, label, keys)
    assert best.seeds == (1, 2)
    assert best.data.validation is None
    assert best.stop.virtual_seconds == 20

    run_all(best, ["fedavg", "fedbuff"], tmp_path / "out", display(best))
    runs = collect([tmp_path / "out"])
    assert {run.label for run in runs} == {"fedavg", "fedbuff"}
    rows = summarise(runs)
    tuning = ReportedTuning.of(runs, rows[0].measure)
    assert "Tuned by 3 trials each." in finding(rows, tuning)
    assert "Not tuned" not in finding(rows, tuning)
    # A run with another value was not tuned.
    runs[0].config["local"]["lr"] *= 1.5
    assert set(tuning_of(runs)) == {"fedbuff"}


def test_it_resumes_and_another_tuning_is_refused_until_a_fresh_one(tune, files, tmp_path):
    first, _ = tune(labels=["fedbuff"])
    record = read_tuning(tmp_path / "out")
    run = tmp_path / "out" / "tuning" / "fedbuff 2-seed1000000"
    run.rename(tmp_path / "gone")  # as if a kill had come in this run
    again, screen = tune(labels=["fedbuff"])
    assert again == first
    assert read_tuning(tmp_path / "out") == record
    assert screen.count("fedbuff 2, seed 1000000: ") == 1
    assert files(run) == files(tmp_path / "gone")

    end = "choose another folder with --output, or replace it with --fresh$"
    with pytest.raises(OffbeatError, match=f"out holds a tuning by 3 trials of fedbuff: {end}"):
        tune(labels=["fedbuff"], trials=4)
    with pytest.raises(OffbeatError, match=f"out holds a tuning of other values: {end}"):
        tune("local.lr=0.07", labels=["fedbuff"])
    with pytest.raises(OffbeatError, match=f"fedbuff 0-seed1000000 holds a run with other settings: {end}"):
        tune("local.steps=4", labels=["fedbuff"])
    (tmp_path / "out" / "fedbuff-seed1").mkdir()
    (tmp_path / "out" / "other-seed1").mkdir()
    tune(labels=["fedbuff"], trials=2, fresh=True)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"tuning", "other-seed1"}
    assert len(collect([tmp_path / "out" / "tuning"])) == 2


def test_runs_that_were_not_tuned_are_kept(tune, tmp_path):
    (tmp_path / "out" / "fedbuff-seed1").mkdir(parents=True)
    with pytest.raises(OffbeatError, match="out holds runs that were not tuned: choose another folder"):
        tune(labels=["fedbuff"])


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("data.validation=0.1", "--tune sets aside a validation part of its own: leave data.validation out"),
        ("flower.app=app.py:app", "--tune: the Flower app has the training data, so no validation part can be set asi"),
    ],
)
def test_what_has_no_validation_part_is_refused(change, line, tune):
    with pytest.raises(OffbeatError, match=line):
        tune(change)


def test_limits_are_cut_and_the_target_is_that_of_the_main_metric(file):
    def cut(*changes):
        return Tuning.of(file, changes, [], ["fedbuff"], 2).sweep

    sweep = cut("stop={ versions = 5, updates = 20, target = 0.9 }", "evaluate={ every_seconds = 20.0 }")
    stop = sweep.experiment.stop
    assert (stop.virtual_seconds, stop.versions, stop.updates, sweep.target) == (None, 3, 10, 0.9)
    assert cut("evaluate.target=0.4", "stop.target=0.9").target == 0.4
    assert cut("stop.target=0.1", "stop.metric=loss", "evaluate={ every_seconds = 20.0 }").target is None
    assert cut("seeds=[1000000, 1000001]").experiment.seeds == (1_000_002,)
