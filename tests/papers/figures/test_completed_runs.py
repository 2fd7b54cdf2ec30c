"""Runs that are kept or run again."""

from pathlib import Path

import pytest

from tests.papers.conftest import FIGURE


@pytest.fixture
def reproduced(experiments, papers):
    return papers("paper/fig1", "--jobs", "1")


def runs():
    return Path("runs/reproduce/paper/fig1-quick")


def test_finished_runs_are_only_drawn_again(reproduced, papers):
    (runs() / "figure.png").unlink()
    before = {path: path.stat().st_mtime_ns for path in runs().glob("*/model.safetensors")}
    code, out, _ = papers("paper/fig1", "--jobs", "1")
    assert code == 0
    assert "4 of 4 runs are finished" in out
    assert {path: path.stat().st_mtime_ns for path in runs().glob("*/model.safetensors")} == before
    assert (runs() / "figure.png").exists()


def test_runs_on_fallback_data_are_not_repeated(experiments, papers):
    path = experiments / "paper" / "fig1.toml"
    other = 'name = "sentiment140"\nfallback = "digits"'
    path.write_text(FIGURE.replace('name = "digits"', other), encoding="utf-8")
    code, out, err = papers("paper/fig1", "--jobs", "1")
    assert (code, err) == (0, "")
    assert "going on with digits instead" in out
    assert "4 of 4 runs are finished" in papers("paper/fig1", "--jobs", "1")[1]


def test_only_changed_algorithms_are_run_again(reproduced, experiments, papers):
    path = experiments / "paper" / "fig1.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("concurrency = 4", "concurrency = 3"), encoding="utf-8")
    code, out, err = papers("paper/fig1", "--jobs", "1")
    assert (code, err) == (0, "")
    assert "2 of 4 runs are finished" in out


def test_runs_with_a_moved_user_file_are_repeated(experiments, papers):
    path = experiments / "paper" / "fig1.toml"
    path.write_text(FIGURE.replace('name = "digits"', 'name = "mine.py:mine"'), encoding="utf-8")
    code = 'from offbeat.data import load_dataset\n\n\ndef mine():\n    return load_dataset("digits")\n'
    (experiments / "paper" / "mine.py").write_text(code, encoding="utf-8")
    assert papers("paper/fig1", "--jobs", "1")[0] == 0
    experiments.rename("moved")
    code, out, err = papers("paper/fig1", "--jobs", "1", "--experiments", "moved")
    assert (code, err) == (0, "")
    assert "runs are finished" not in out
    assert "moved" in (runs() / "fedavg-seed1" / "config.toml").read_text(encoding="utf-8")
