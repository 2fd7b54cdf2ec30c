import re
import shlex
import tomllib
from pathlib import Path

import pytest


@pytest.fixture
def folder(tmp_path, tiny_toml, monkeypatch):
    (tmp_path / "tiny.toml").write_text(tiny_toml, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


SWEEP = ("sweep", "tiny.toml", "--over", "algorithms.fedbuff.server_lr=0.1:3:log", "--trials", "2")


def test_prints_trials_and_the_best_settings(offbeat, folder):
    code, out, err = offbeat(*SWEEP, "--set", "seeds=[1, 2]")
    assert (code, err) == (0, "")
    assert "2 trials of fedbuff, by the mean of the last 10 evaluations of accuracy over seeds 1, 2" in out
    runs = Path("runs/tiny-sweep")
    assert {path.name for path in runs.iterdir()} == {
        "best.toml", "sweep.csv", "optuna.journal", *(f"fedbuff {n}-seed{seed}" for n in (0, 1) for seed in (1, 2)),
    }  # fmt: skip
    pasted = tomllib.loads(out[out.index("[algorithms.fedbuff]") : out.index("Compare them")])
    best = tomllib.loads((runs / "best.toml").read_text(encoding="utf-8"))
    assert best["algorithms"]["fedbuff"]["server_lr"] == pasted["algorithms"]["fedbuff"]["server_lr"]
    first = re.search(r"^fedbuff 0: server_lr = (\S+)$", out, re.MULTILINE)
    assert first
    assert first[1] in out.partition("Trial ")[2]


def test_the_named_command_compares_the_best_settings_on_other_seeds(offbeat, folder):
    _, out, _ = offbeat(*SWEEP, "--output", "a folder")
    command = shlex.split(out.splitlines()[-1].partition(": ")[2])
    assert command == ["offbeat", "compare", "a folder/best.toml", "--set", "seeds=[2]"]
    code, out, err = offbeat(*command[1:])
    assert (code, err) == (0, "")
    assert {path.name for path in Path("runs/tiny-best").iterdir() if "-seed" in path.name} == {
        "fedavg-seed2", "fedasync-seed2", "fedbuff-seed2",
    }  # fmt: skip


def test_a_report_reads_the_trials(offbeat, folder):
    offbeat(*SWEEP)
    code, out, _ = offbeat("report", "runs/tiny-sweep")
    assert code == 0
    assert "fedbuff 0" in out
    assert "fedbuff 1" in out


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
