"""``python -m papers``, from a figure's file to its page."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from offbeat.report.plots import over_updates
from offbeat.runs.directory import read
from offbeat.units import percent
from papers.figures import comparison
from papers.figures.algorithms_table import mean_in_words
from papers.figures.catalogue import result_of
from papers.figures.figure_file import load
from tests.papers.conftest import FIGURE, PANELS

PNG = b"\x89PNG"


@pytest.fixture
def reproduced(experiments, papers):
    return papers("paper/fig1", "--jobs", "1")


def runs():
    return Path("runs/reproduce/paper/fig1-quick")


def test_each_claim_has_its_verdict(reproduced):
    code, out, err = reproduced
    assert (code, err) == (0, "")
    rows = {name: re.search(rf"{name}.*", out).group() for name in ("FedAvg learns", "FedAvg is perfect", "FedAsync")}
    assert "holds (2 of 2 seeds)" in rows["FedAvg learns"]
    assert "does not hold (0 of 2 seeds)" in rows["FedAvg is perfect"]
    assert (runs() / "figure.png").read_bytes().startswith(PNG)
    page = (runs() / "page.md").read_text(encoding="utf-8")
    assert "`python -m papers paper/fig1 --scale quick`" in page
    assert "| FedAvg is perfect | it is | mean accuracy of the last 10.0 s of fedavg: " in page
    assert "- Everything." in page
    assert "- At this scale: `stop.virtual_seconds=20.0`." in page


def test_finished_runs_are_only_drawn_again(reproduced, papers):
    (runs() / "figure.png").unlink()
    before = {path: path.stat().st_mtime_ns for path in runs().glob("*/model.safetensors")}
    code, out, _ = papers("paper/fig1", "--jobs", "1")
    assert code == 0
    assert "4 of 4 runs are finished" in out
    assert {path: path.stat().st_mtime_ns for path in runs().glob("*/model.safetensors")} == before
    assert (runs() / "figure.png").exists()


def test_each_measure_of_a_claim_has_its_own_figure(experiments, papers):
    path = experiments / "paper" / "fig1.toml"
    text = path.read_text(encoding="utf-8").replace('quantity = "final"', 'quantity = "final"\nmeasure = "loss"', 1)
    path.write_text(text.replace('over = "updates"', 'over = "updates"\ncrop = true'), encoding="utf-8")
    code, out, _ = papers("paper/fig1", "--jobs", "1")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("Figure")] == [
        f"Figure: {runs() / 'figure.png'}",
        f"Figure: {runs() / 'figure-loss.png'}",
    ]
    assert (runs() / "figure-loss.png").read_bytes() != (runs() / "figure.png").read_bytes()
    page = (runs() / "page.md").read_text(encoding="utf-8")
    assert "![Figure 1](figure-loss.png)" in page
    assert "loss at the end of fedavg: " in page


def test_a_compared_panel_is_run_first(experiments, papers, monkeypatch):
    path = experiments / "paper" / "fig1.toml"
    path.write_text(FIGURE + PANELS, encoding="utf-8")
    drawn = []

    def draw(runs, target, measure):
        drawn.append([(run.label, run.seed) for run in runs])
        return over_updates(runs, target, measure)

    monkeypatch.setitem(comparison._DRAW, "updates", draw)
    code, out, err = papers("paper/fig1b", "--jobs", "1")
    assert (code, err) == (0, "")
    assert re.findall(r"^paper/\w+", out, re.MULTILINE) == ["paper/fig1a", "paper/fig1b"]
    (row,) = re.findall(r"More clients are no slower.*", out)
    assert "holds (2 of 2 seeds)" in row
    own = [(label, seed) for label in ("fedavg", "fedasync") for seed in (1, 2)]
    assert drawn == [own, [*own, ("fedasync (fig1a)", 1), ("fedasync (fig1a)", 2)]]
    page = Path("runs/reproduce/paper/fig1b-quick/page.md").read_text(encoding="utf-8")
    best = {
        (panel, label): np.array(
            [
                read(Path(f"runs/reproduce/paper/fig1{panel}-quick/{label}-seed{seed}")).history["accuracy"].max()
                for seed in (1, 2)
            ]
        )
        for panel in "ab"
        for label in ("fedasync", "fedavg")
    }
    few = mean_in_words(best["a", "fedasync"], percent, "")
    assert f"at least that of fedasync (fig1a), {few}, give or take 0.9" in page
    ahead = {panel: mean_in_words(best[panel, "fedavg"] - best[panel, "fedasync"], percent, "") for panel in "ab"}
    assert f"best accuracy of fedavg less that of fedasync: {ahead['b']} | close to" in page
    assert f"close to that of fedavg (fig1a) less that of fedasync (fig1a), {ahead['a']}, within 0.9" in page
    assert "10 clients" in page


def test_a_figure_has_no_result_without_its_compared_panel(experiments, papers):
    path = experiments / "paper" / "fig1.toml"
    path.write_text(FIGURE + PANELS, encoding="utf-8")
    papers("paper/fig1", "--jobs", "1")
    few, many = load(path)
    results = Path("runs/reproduce")
    assert result_of(few, "quick", results) is not None
    assert result_of(many, "quick", results) is not None
    shutil.rmtree(results / "paper" / "fig1a-quick" / "fedasync-seed2")
    assert result_of(many, "quick", results) is None
    code, again, _ = papers("paper/fig1b", "--jobs", "1")
    assert code == 0
    assert "3 of 4 runs are finished" in again
    assert "4 of 4 runs are finished" in again


def test_the_other_figures_run_after_a_failure(experiments, papers):
    (experiments / "paper" / "fig1.toml").write_text(FIGURE + PANELS, encoding="utf-8")
    (experiments / "paper" / "fig2.toml").write_text(FIGURE, encoding="utf-8")
    panel = 'set = ["population.clients=5"'
    broken = FIGURE + PANELS.replace(panel, 'set = ["model.name=gone.py:make", "population.clients=5"')
    (experiments / "paper" / "fig1.toml").write_text(broken, encoding="utf-8")
    (experiments / "paper" / "gone.py").write_text("def make(shape, outputs):\n    raise ValueError('none')\n")
    code, out, err = papers("--all", "--jobs", "1", "--pages", "docs")
    assert code == 2
    first, second, last = err.splitlines()
    assert first.startswith("paper/fig1a: ")
    assert second == "paper/fig1b: its claims compare with paper/fig1a, which failed"
    assert last == "python -m papers: could not run paper/fig1a, paper/fig1b; the reason for each is printed above"
    assert "paper/fig2" in out
    assert "Figure 1, quick scale" in Path("docs/paper.md").read_text(encoding="utf-8")
    code, _, alone = papers("paper/fig1a", "--jobs", "1")
    assert code == 2
    assert alone.startswith("python -m papers: ")
    assert alone.count("\n") == 1


def test_runs_on_fallback_data_are_not_repeated(experiments, papers):
    path = experiments / "paper" / "fig1.toml"
    other = 'name = "sentiment140"\nfallback = "digits"'
    path.write_text(FIGURE.replace('name = "digits"', other), encoding="utf-8")
    code, out, err = papers("paper/fig1", "--jobs", "1")
    assert (code, err) == (0, "")
    assert "going on with digits instead" in out
    assert "4 of 4 runs are finished" in papers("paper/fig1", "--jobs", "1")[1]


def test_list_shows_the_verdicts_of_local_runs(experiments, papers):
    _, before, _ = papers("--list")
    assert "not run" in before
    assert re.search(r"paper/fig1 .*A paper .*Figure 1 .*digits .*quick: 0\.1 min", before)
    assert "full: 3 h" in before
    papers("--all", "--jobs", "1")
    _, after, _ = papers("--list")
    assert "quick: holds" in after
    assert "quick: does not hold" in after
    # Of other settings than the file's nothing is known.
    path = experiments / "paper" / "fig1.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("lr = 0.1", "lr = 0.2"), encoding="utf-8")
    _, changed, _ = papers("--list")
    assert "holds" not in changed


def test_a_diverged_run_has_no_number_and_its_claim_does_not_hold(experiments, papers):
    path = experiments / "paper" / "fig1.toml"
    text = path.read_text(encoding="utf-8").replace("[algorithms.fedavg]", "[algorithms.fedavg]\nlocal = { lr = 3e38 }")
    path.write_text(text, encoding="utf-8")
    code, out, err = papers("paper/fig1", "--jobs", "2")
    assert (code, err) == (0, "")
    row = re.search("FedAvg learns.*", out).group()
    assert "unknown" in row
    assert "does not hold (0 of 2 seeds)" in row
    assert (runs() / "figure.png").exists()


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


def test_pages(experiments, papers):
    code, out, _ = papers("--all", "--jobs", "1", "--pages", "docs")
    assert (code, out.splitlines()[-1]) == (0, f"Pages: {Path('docs/index.md')}")
    index = Path("docs/index.md").read_text(encoding="utf-8")
    assert "Of 3 claims 2 hold, 1 do not, 0 differ between seeds, 0 are undecided." in index
    assert "| [A paper](paper.md) | 3 | 2 | 1 | 0 | 0 | 0 |" in index
    assert "![Figure 1](images/paper-fig1-quick.png)" in Path("docs/paper.md").read_text(encoding="utf-8")
    assert Path("docs/images/paper-fig1-quick.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("arguments", [(), ("paper/fig1", "--all")])
def test_figures_or_all_must_be_given(experiments, papers, arguments):
    code, _, err = papers(*arguments)
    assert code == 2
    assert "name a figure, such as fedlaavg/fig4e, or give --all" in err


def test_figures_without_the_scale_are_reported_and_left_out(experiments, papers):
    path = experiments / "paper" / "fig1.toml"
    other = path.read_text(encoding="utf-8").replace("[scales.quick]", "[scales.medium]")
    (experiments / "paper" / "fig2.toml").write_text(other, encoding="utf-8")
    code, out, _ = papers("paper", "--jobs", "1")
    assert code == 0
    assert out.splitlines()[0] == "Left out, since they have no scale quick: paper/fig2"
    assert not Path("runs/reproduce/paper/fig2-quick").exists()
    _, out, _ = papers("--all", "--jobs", "1")
    assert "Left out" not in out


def test_a_missing_scale_is_one_line(experiments, papers):
    code, _, err = papers("paper/fig1", "--scale", "medium")
    assert (code, err) == (2, "python -m papers: paper/fig1: no scale medium; choose from quick, full\n")
