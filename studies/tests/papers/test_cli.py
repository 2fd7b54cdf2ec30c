"""``offbeat papers``, from a figure's file to its page."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from studies.tests.papers.conftest import FIGURE, OWN, PANELS, RESULTS

PNG = b"\x89PNG"
FIG1 = RESULTS / "fig1-quick"


def test_each_claim_has_its_verdict(reproduced):
    rows = {
        name: re.search(rf"{name}.*", reproduced).group() for name in ("FedAvg learns", "FedAvg is perfect", "FedAsync")
    }
    assert "open (fewer than 5 seeds)" in re.sub(r"\s+", " ", rows["FedAvg learns"] + reproduced)
    assert "[sic]" in rows["FedAvg is perfect"]
    assert (FIG1 / "figure.png").read_bytes().startswith(PNG)
    page = (FIG1 / "page.md").read_text(encoding="utf-8")
    assert "`offbeat papers paper/fig1 --scale quick`" in page
    assert "| FedAvg is perfect | it is [sic] | mean accuracy of the last 10.0 s of fedavg: " in page
    assert "- Everything.\n- Half of the time.\n- At this scale: `stop.virtual_seconds=20.0`.\n" in page


def test_the_other_figures_run_after_a_failure(experiments, write, papers):
    (experiments / "paper" / "fig2.toml").write_text(FIGURE, encoding="utf-8")
    write(FIGURE + PANELS, ('"population.clients=5"', '"model.name=gone.py:make", "population.clients=5"'))
    (experiments / "paper" / "gone.py").write_text("def make(shape, outputs):\n    raise ValueError('none')\n")
    code, out, err = papers("--all", "--jobs", "1", "--pages", "docs")
    assert code == 2
    first, second, last = err.splitlines()
    assert first.startswith("paper/fig1a: ")
    assert second == "paper/fig1b: its claims compare with paper/fig1a, which failed"
    assert last == "offbeat: could not run paper/fig1a, paper/fig1b; the reason for each is printed above"
    assert "paper/fig2" in out
    assert "Figure 1, quick scale" in Path("docs/paper.md").read_text(encoding="utf-8")
    code, _, alone = papers("paper/fig1a", "--jobs", "1")
    assert code == 2
    assert alone.startswith("offbeat: ")
    assert alone.count("\n") == 1


def test_list_shows_the_verdicts_of_local_runs(reproduced, write, papers):
    _, after, _ = papers("--list", "--pages", "elsewhere")
    assert re.search(r"paper/fig1 .*A paper .*Figure 1 .*digits .*quick: 0\.1 min", after)
    assert "full: 3 h" in after
    assert after.count("quick: open") == 3
    # Of other settings than the file's nothing is known.
    write(FIGURE, ("lr = 0.1", "lr = 0.2"))
    _, changed, _ = papers("--list")
    assert "not run" in changed
    assert "quick: open" not in changed


def test_pages(reproduced):
    assert reproduced.splitlines()[-1] == f"Pages: {Path('docs/index.md')}"
    index = Path("docs/index.md").read_text(encoding="utf-8")
    assert "| [A paper](paper.md) | – | – | 0 / 0 / 0 / 3 | – |" in index
    assert Path("docs/images/summary-paper.png").read_bytes().startswith(PNG)
    assert "![Figure 1](images/paper-fig1-quick.png)" in Path("docs/paper.md").read_text(encoding="utf-8")
    assert Path("docs/images/paper-fig1-quick.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("arguments", [(), ("paper/fig1", "--all")])
def test_figures_or_all_must_be_given(experiments, papers, arguments):
    code, _, err = papers(*arguments)
    assert code == 2
    assert "name a figure, such as fedlaavg/fig4e, or give --all" in err


def test_figures_without_the_scale_are_reported_and_left_out(reproduced, papers):
    other = FIGURE.replace("[tool.papers.scales.quick]", "[tool.papers.scales.medium]")
    Path("papers/paper/fig2.toml").write_text(other, encoding="utf-8")
    code, out, _ = papers("paper", "--jobs", "1")
    assert code == 0
    assert out.splitlines()[0] == "Left out, since they have no scale quick: paper/fig2"
    assert not (RESULTS / "fig2-quick").exists()
    _, out, _ = papers("--all", "--jobs", "1")
    assert "Left out" not in out


def test_a_missing_scale_is_one_line(experiments, papers):
    code, _, err = papers("paper/fig1", "--scale", "medium")
    assert (code, err) == (2, "offbeat: paper/fig1: no scale medium; choose from quick, full\n")


@pytest.mark.long
def test_a_figure_that_was_stopped_is_one_line(write):
    write(FIGURE, ("virtual_seconds=20.0", "virtual_seconds=1e7"))
    process = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "offbeat", *OWN, "paper/fig1", "--jobs", "2"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # a background job ignores it
    )  # fmt: skip
    end = time.monotonic() + 60
    while time.monotonic() < end and len(list(RESULTS.rglob("config.toml"))) < 2:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert err.lstrip("\n") == "offbeat: stopped by SIGINT: the same command resumes\n"


def test_help_gives_an_example(offbeat):
    code, out, _ = offbeat("papers", "--help")
    assert code == 0
    assert "Example:\n    offbeat papers fedlaavg/fig4e --scale quick" in out


@pytest.mark.long
def test_the_figures_of_this_package_are_found_anywhere(offbeat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = offbeat("papers", "--list")
    assert code == 0
    assert "fedlaavg/fig4e" in out
