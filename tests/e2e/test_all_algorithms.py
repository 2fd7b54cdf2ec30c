"""experiments/all-algorithms.toml: the algorithms in one world and one report."""

import shutil
from pathlib import Path

from click.testing import CliRunner
from matplotlib.figure import Figure

from offbeat.cli.main import app
from offbeat.config import experiment_file
from offbeat.report.collect import collect

# A fifth or so above what is left of the first loss; two thirds of the learning rate exceed most of them.
LEFT = {
    "ace": 0.54, "area": 0.92, "async_comm_sgd": 0.85, "ca2fl": 0.4, "fadas": 0.36, "fedasync": 0.34, "fedavg": 0.42,
    "fedbuff": 0.155, "fedcompass": 0.81, "feddyn": 0.33, "fedfa": 0.255, "fedlaavg": 0.7, "fedluck": 0.26,
    "fednova": 0.42, "fedprox": 0.48, "mifa": 0.88, "port": 0.44, "scaffold": 0.55,
    "sequential_sgd": 0.1,
}  # fmt: skip
FILE = Path(__file__).parents[2] / "experiments" / "all-algorithms.toml"


def test_they_all_learn_in_one_world_and_stand_in_one_report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: file.write(b"\x89PNG"))  # nobody looks at them
    file = Path(shutil.copy(FILE, tmp_path))
    # Digits are always at hand, and five hours or 160 updates are enough to see that it learns.
    changes = [
        "data.name=digits",
        "stop.updates=160",
        "stop.virtual_seconds=18000.0",
        "local.lr=0.3",
        "algorithms.area.local.lr=0.6",
        "algorithms.ringmaster.local.lr=0.05",
        "algorithms.sequential_sgd.cohort=5",
    ]
    options = [part for change in changes for part in ("--set", change)]
    result = CliRunner().invoke(app, ["compare", str(file), "--output", "out", *options], catch_exceptions=False)
    assert result.exit_code == 0
    runs = collect([Path("out")])
    labels = list(experiment_file.load(file).algorithms)
    assert {run.label for run in runs} == set(labels)
    for run in runs:
        if run.label == "ringleader":  # waits for every client, and some lose all their work
            assert run.history["version"][-1] == 0
            continue
        loss = run.history["loss"]
        assert loss[-1] < LEFT.get(run.label, 0.9) * loss[0], run.label
        assert run.history["version"][-1] >= 4, run.label
    report = Path("out/report.html").read_text(encoding="utf-8")
    assert all(label in report for label in labels)
