import re
import shlex
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest

SWEEP = ("sweep", "tiny.toml", "--over", "algorithms.fedbuff.server_lr=0.1:3:log", "--trials", "2")


def test_prints_trials_and_the_best_settings_which_can_be_reported_on_and_compared(offbeat, folder):
    code, out, err = offbeat(*SWEEP, "--set", "seeds=[1, 2]", "--output", "a folder")
    assert (code, err) == (0, "")
    assert "2 trials of fedbuff, by the mean of the last 10 evaluations of accuracy over seeds 1, 2" in out
    runs = Path("a folder")
    assert {path.name for path in runs.iterdir()} == {
        "best.toml", "sweep.csv", "sweep.json", "report.html", "optuna.journal",
        *(f"fedbuff {n}-seed{seed}" for n in (0, 1) for seed in (1, 2)),
    }  # fmt: skip
    pasted = tomllib.loads(out[out.index("[algorithms.fedbuff]") : out.index("Compare them")])
    best = tomllib.loads((runs / "best.toml").read_text(encoding="utf-8"))
    assert best["algorithms"]["fedbuff"]["server_lr"] == pasted["algorithms"]["fedbuff"]["server_lr"]
    first = re.search(r"^fedbuff 0: server_lr = (\S+)$", out, re.MULTILINE)
    assert first
    assert first[1] in out.partition("Trial ")[2]

    command = shlex.split(out.splitlines()[-1].partition(": ")[2])
    assert command == ["offbeat", "compare", "a folder/best.toml", "--set", "seeds=[3, 4]"]
    assert offbeat(*command[1:], "--set", "seeds=[3]")[::2] == (0, "")
    assert {path.name for path in Path("runs/tiny-best").iterdir() if "-seed" in path.name} == {
        "fedavg-seed3", "fedasync-seed3", "fedbuff-seed3",
    }  # fmt: skip

    (runs / "report.html").unlink()
    code, out, _ = offbeat("report", "a folder")
    assert code == 0
    assert "2 trials of fedbuff, by the mean" in out
    assert "Best accuracy: " in (runs / "report.html").read_text(encoding="utf-8")
    code, _, err = offbeat("report", "a folder", "--target", "0.5")
    says = "offbeat: a folder is a sweep: its report has no --target, --markdown or --tensorboard\n"
    assert (code, err) == (2, says)


def test_without_an_output_it_is_below_runs_and_its_runs_can_be_tracked(offbeat, folder, monkeypatch):
    tracked = []

    @contextmanager
    def follow(path, names):
        assert not path.exists()  # as soon as the runs begin
        yield
        tracked.append((path, names, len(list(path.glob("*-seed1")))))

    monkeypatch.setattr("offbeat.cli.sweep.tracked", follow)
    more = ("--trials", "1", "--set", "stop.virtual_seconds=5", "--track", "tensorboard")
    assert offbeat(*SWEEP, *more)[::2] == (0, "")
    assert Path("runs/tiny-sweep/best.toml").exists()
    assert tracked == [(Path("runs/tiny-sweep"), ("tensorboard",), 1)]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["no.toml", "--over", "local.lr=1:2"], "no such file: no.toml"),
        (["tiny.toml"], "Missing option '--over'. See offbeat sweep --help."),
        (["tiny.toml", "--over", "local.lr=2:1"], "--over local.lr=2:1: the range is empty: "),
        (
            ["tiny.toml", "--over", "local.lr=1:2", "--algorithm", "fedbuf"],
            "--algorithm fedbuf: did you mean 'fedbuff'?",
        ),
        (["tiny.toml", "--over", "local.lr=1:2", "--trials", "0"], "Invalid value for '--trials'"),
    ],
)
def test_a_mistake_is_one_line(arguments, line, offbeat, folder):
    code, out, err = offbeat("sweep", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"offbeat: {line}")
    assert err.count("\n") == 1
    assert not Path("runs").exists()


def test_without_optuna_it_says_how_to_install_it(offbeat, folder, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = offbeat(*SWEEP)
    assert (code, err) == (2, "offbeat: a sweep needs Optuna: pip install 'offbeat[sweep]'\n")
