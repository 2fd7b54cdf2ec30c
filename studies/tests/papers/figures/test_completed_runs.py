"""Runs that are kept or run again."""

import pytest

from studies.tests.papers.conftest import FIGURE, RESULTS

FIG1 = RESULTS / "fig1-quick"
pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.mark.long
def test_finished_runs_are_only_drawn_again(reproduced, papers):
    (FIG1 / "figure.png").unlink()
    before = {path: path.stat().st_mtime_ns for path in FIG1.glob("*/model.safetensors")}
    code, out, _ = papers("paper/fig1", "--jobs", "1")
    assert code == 0
    assert "4 of 4 runs are finished" in out
    assert {path: path.stat().st_mtime_ns for path in FIG1.glob("*/model.safetensors")} == before
    assert (FIG1 / "figure.png").exists()


def test_runs_on_fallback_data_are_not_repeated(write, papers):
    write(FIGURE, ('name = "digits"', 'name = "sentiment140"\nfallback = "digits"'))
    code, out, err = papers("paper/fig1", "--jobs", "1")
    assert (code, err) == (0, "")
    assert "going on with digits instead" in out
    assert "4 of 4 runs are finished" in papers("paper/fig1", "--jobs", "1")[1]


def test_only_changed_algorithms_are_run_again(reproduced, write, papers):
    write(FIGURE, ("concurrency = 4", "concurrency = 3"))
    code, out, err = papers("paper/fig1", "--jobs", "1")
    assert (code, err) == (0, "")
    assert "2 of 4 runs are finished" in out


@pytest.mark.long
def test_runs_with_a_moved_user_file_are_repeated(experiments, write, papers):
    write(FIGURE, ('name = "digits"', 'name = "mine.py:mine"'))
    code = 'from offbeat.data import load_dataset\n\n\ndef mine():\n    return load_dataset("digits")\n'
    (experiments / "paper" / "mine.py").write_text(code, encoding="utf-8")
    assert papers("paper/fig1", "--jobs", "1")[0] == 0
    experiments.rename("moved")
    code, out, err = papers("paper/fig1", "--jobs", "1", "--experiments", "moved")
    assert (code, err) == (0, "")
    assert "runs are finished" not in out
    assert "moved" in (FIG1 / "fedavg-seed1" / "config.toml").read_text(encoding="utf-8")
