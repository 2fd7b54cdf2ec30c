import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tomli_w
from offbeat_core.errors import OffbeatError

from offbeat.report.collect import collect
from offbeat.report.summary import summarise
from offbeat.runs import directory as run_directory
from offbeat.runs.settings import world_of
from tests.report.example_runs import a_run

CHANGES = {}  # columns that a test changes, by the name of the run's folder


@pytest.fixture(autouse=True)
def _read_from_the_configuration_alone(monkeypatch):
    """Read runs from the configuration alone, with made-up tables.

    Here the configuration is a file, because the storage of runs is the business of run_directory.
    """

    def read(path):
        config = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
        (label,), (seed,) = config["algorithms"], config["seeds"]
        visits, finished = [(0, "counted"), (None, "lost")], not path.name.endswith(".unfinished")
        columns = {"loss": [2.0, np.nan]}
        run = a_run(label, seed, visits=visits, config=config, columns=columns, path=path, finished=finished)
        for table, name, column in CHANGES.get(path.name, ()):
            if table == "run":
                return replace(run, **{name: column})
            getattr(run, table)[name] = column
        return run

    monkeypatch.setattr(run_directory, "read", read)
    CHANGES.clear()


def write(folder: Path, label="fedavg", seed=1, ending="", **changes):
    config = {
        "name": folder.name,
        "seeds": [seed],
        "data": {"name": "digits"},
        "model": {"name": "mlp"},
        "population": {"clients": 20},
        "stop": {"updates": 100},
        "evaluate": {"metrics": ["accuracy"], "better": "higher"},
        "algorithms": {label: {"cohort": 4}},
        **changes,
    }
    path = folder / f"{label}-seed{seed}{ending}"
    path.mkdir(parents=True)
    (path / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
    return path


def names(runs):
    return [(run.label, run.seed) for run in runs]


def test_an_experiments_folder_has_its_runs_by_label_and_seed(tmp_path):
    for label, seed in (("fedbuff", 10), ("fedbuff", 9), ("fedavg", 1), ("a-seed5", 2)):
        write(tmp_path / "quick", label, seed)
    write(tmp_path / "quick", ".fedavg", 3)  # half written
    (tmp_path / "quick" / "plots").mkdir()
    (tmp_path / "quick" / "notes-seed1").write_text("a file", encoding="utf-8")
    runs = collect([tmp_path / "quick"])
    assert names(runs) == [("a-seed5", 2), ("fedavg", 1), ("fedbuff", 9), ("fedbuff", 10)]


def test_folders_of_single_runs_of_which_each_counts_once(tmp_path, monkeypatch):
    paths = [write(tmp_path / "quick", "b"), write(tmp_path / "quick", "a"), write(tmp_path / "quick", "c")]
    monkeypatch.chdir(tmp_path)
    twice = [*paths[:2], paths[0], Path("quick/b-seed1"), Path("quick/../quick/b-seed1")]
    assert names(collect(twice)) == [("b", 1), ("a", 1)]
    assert names(collect([tmp_path / "quick", Path("quick")])) == [("a", 1), ("b", 1), ("c", 1)]


def test_an_unfinished_run_counts_unless_it_is_also_finished(tmp_path):
    write(tmp_path, "fedavg", 1)
    write(tmp_path, "fedavg", 1, ".unfinished")
    write(tmp_path, "fedavg", 2, ".unfinished")
    runs = collect([tmp_path])
    assert [(run.seed, run.finished) for run in runs] == [(1, True), (2, False)]


def test_an_unfinished_run_without_an_evaluation_is_left_out(tmp_path):
    write(tmp_path, "fedavg", 1)
    (tmp_path / "fedavg-seed3.unfinished").mkdir()  # it has just begun
    path = write(tmp_path, "fedavg", 2, ".unfinished")
    totals = ("seconds", "version", "counted", "unused", "lost", "bytes_down", "bytes_up", "displacement")
    CHANGES[path.name] = [("history", name, np.array([], float)) for name in (*totals, "accuracy", "loss")]
    assert names(collect([tmp_path])) == [("fedavg", 1)]
    with pytest.raises(OffbeatError, match=r"unfinished has an evaluation yet: wait"):
        collect([path])
    (tmp_path / "new" / "fedavg-seed2.unfinished").mkdir(parents=True)
    with pytest.raises(OffbeatError, match="new has an evaluation yet: wait"):
        collect([tmp_path / "new"])


def test_experiments_with_other_seeds_are_put_together(tmp_path):
    write(tmp_path / "one", "fedavg", 1)
    write(tmp_path / "two", "fedavg", 2)
    write(tmp_path / "two", "fedbuff", 1)
    runs = collect([tmp_path / "one", tmp_path / "two"])
    assert names(runs) == [("fedavg", 1), ("fedavg", 2), ("fedbuff", 1)]


@pytest.mark.parametrize(("seed", "changes"), [(1, {}), (2, {"local": {"lr": 0.1}}), (2, {"data": {"name": "mnist"}})])
def test_a_label_of_two_experiments_gets_their_names(tmp_path, seed, changes):
    write(tmp_path / "one", "fedavg", 1)
    write(tmp_path / "two", "fedavg", seed, **changes)
    write(tmp_path / "two", "fedbuff", 1, **changes)
    runs = collect([tmp_path / "one", tmp_path / "two"])
    # If settings differ, every label names its experiment, not only those that clash.
    assert names(runs) == [("one/fedavg", 1), ("two/fedavg", seed), ("two/fedbuff" if changes else "fedbuff", 1)]
    rows = summarise(runs, 0.5)
    assert {row.baseline for row in rows} == {"one/fedavg"}
    assert world_of(runs).startswith("The settings differ in") == bool(changes)
    assert world_of(runs).startswith("The settings differ in data.name. one/fedavg: digits") == ("data" in changes)


def test_seeds_stay_together_where_a_third_experiment_has_other_settings(tmp_path):
    write(tmp_path / "one", "fedavg", 1)
    write(tmp_path / "two", "fedavg", 2)
    write(tmp_path / "three", "fedbuff", 1, data={"name": "mnist"})
    runs = collect([tmp_path / name for name in ("one", "two", "three")])
    assert names(runs) == [("one+two/fedavg", 1), ("one+two/fedavg", 2), ("three/fedbuff", 1)]


def test_a_folder_of_experiments_is_refused(tmp_path):
    for name in ("wine", "int", "a"):
        write(tmp_path / "runs" / name)
    (tmp_path / "runs" / "b").mkdir()
    with pytest.raises(OffbeatError, match=r"runs holds no runs; did you mean \S*/runs/a, \S*/runs/int, \S*/wine\?$"):
        collect([tmp_path / "runs"])
    write(tmp_path / "runs" / "zoo")
    with pytest.raises(OffbeatError, match=r"runs/wine, …\?$"):
        collect([tmp_path / "runs"])


def test_experiments_of_the_same_name_get_longer_paths(tmp_path):
    folders = [tmp_path / "a" / "runs" / "quick", tmp_path / "b" / "runs" / "quick"]
    for folder in folders:
        write(folder)
    assert names(collect(folders)) == [("a/runs/quick/fedavg", 1), ("b/runs/quick/fedavg", 1)]


def test_different_settings_within_an_experiment_are_refused(tmp_path):
    write(tmp_path / "quick", "fedavg", 1, local={"lr": 0.1, "steps": 5})
    write(tmp_path / "quick", "fedavg", 2, local={"lr": 0.2, "steps": 5})
    with pytest.raises(OffbeatError, match=r"quick: the runs of fedavg differ in local\.lr; name only"):
        collect([tmp_path / "quick"])


def test_runs_of_a_flower_app_do_not_differ_in_their_trainer(tmp_path):
    for seed, trainer in ((1, "flower"), (2, "auto")):
        write(tmp_path / "quick", "fedavg", seed, trainer=trainer, flower={"app": "a:app"})
    assert names(collect([tmp_path / "quick"])) == [("fedavg", 1), ("fedavg", 2)]


def test_a_copy_within_an_experiment_is_refused(tmp_path):
    path = write(tmp_path / "quick", "fedavg", 1)
    shutil.copytree(path, path.with_name("copy-seed1"))
    with pytest.raises(OffbeatError, match=r"quick: the runs of fedavg have the seed 1 twice"):
        collect([tmp_path / "quick"])


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("empty", "empty holds no runs: name a folder"),
        ("none", "cannot read .*none: No such file or directory"),
        ("file", "cannot read .*file: Not a directory"),
    ],
)
def test_a_folder_without_runs_is_refused(tmp_path, name, says):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OffbeatError, match=says):
        collect([tmp_path / name])


@pytest.mark.parametrize(
    "changes",
    [
        {"data": {}},
        {"data": 3},
        {"model": {"name": 4}},
        {"population": {"clients": "many"}},
        {"stop": {"updates": "never"}},
        {"stop": []},
        {"algorithms": {"../../x": {}}},
        {"algorithms": {"fedavg": 3}},
        {"algorithms": ["fedavg"]},
        {"algorithms": [5]},
        {"algorithms": "f"},
        {"seeds": ["1"]},
        {"evaluate": {"metrics": ["auc"]}},
    ],
)
def test_a_configuration_without_a_run_is_one_line(tmp_path, changes):
    path = write(tmp_path, **changes)
    with pytest.raises(OffbeatError, match=r"fedavg-seed1"):
        collect([path])


@pytest.mark.parametrize(
    ("table", "name", "column"),
    [
        ("run", "real_seconds", float("nan")),
        ("run", "real_seconds", "long"),
        ("history", "accuracy", np.array(["a", "b"], object)),
        ("history", "seconds", np.array([0.0, np.nan])),
        ("history", "counted", None),
        ("events", "client", np.array(["a", "b"], object)),
        ("events", "ended_seconds", np.array([0.0, np.inf])),
        ("events", "outcome", np.array(["counted", "eaten"], object)),
        ("events", "outcome", np.array([["counted"], []], object)),
        ("events", "staleness", np.array([np.nan, np.nan])),
        ("events", "staleness", np.array(["1", "2"], object)),
    ],
)
def test_tables_that_are_not_of_a_run_are_one_line(tmp_path, table, name, column):
    path = write(tmp_path)
    CHANGES[path.name] = [(table, name, column)]
    with pytest.raises(OffbeatError, match=r"fedavg-seed1 is not a run: .*; name a folder"):
        collect([path])
