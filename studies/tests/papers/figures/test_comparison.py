"""Figures that compare runs."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from offbeat.report.metrics import Measure
from offbeat.report.plots import curves
from offbeat.runs.directory import read
from offbeat_studies.papers.figures import comparison
from offbeat_studies.papers.figures.algorithms_table import mean_in_words
from offbeat_studies.papers.figures.catalogue import result_of
from offbeat_studies.papers.figures.figure_file import load
from studies.tests.papers.conftest import FIGURE, PANELS, RESULTS

FIG1 = RESULTS / "fig1-quick"


def test_each_measure_of_a_claim_has_its_own_figure(reproduced, write, papers):
    write(
        FIGURE,
        ('quantity = "final"', 'quantity = "final"\nmeasure = "loss"'),
        ('over = "updates"', 'over = "updates"\ncrop = true'),
    )
    code, out, _ = papers("paper/fig1", "--jobs", "1")
    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("Figure")] == [
        f"Figure: {FIG1 / 'figure.png'}",
        f"Figure: {FIG1 / 'figure-loss.png'}",
    ]
    assert (FIG1 / "figure-loss.png").read_bytes() != (FIG1 / "figure.png").read_bytes()
    page = (FIG1 / "page.md").read_text(encoding="utf-8")
    assert "![Figure 1](figure-loss.png)" in page
    assert "loss at the end of fedavg: " in page


@pytest.mark.long
def test_a_figure_may_have_more_axes(reproduced, write, papers, monkeypatch):
    drawn = []

    def draw(over, runs, target, measure):
        drawn.append((over, measure.name))
        return curves(over, runs, target, measure)

    monkeypatch.setattr(comparison.plots, "curves", draw)
    write(FIGURE, ('over = "updates"', 'over = "updates"\nalso_over = ["seconds", "bytes"]'))
    code, out, _ = papers("paper/fig1", "--jobs", "1")
    assert code == 0
    pictures = [FIG1 / f"figure{end}.png" for end in ("", "-over-seconds", "-over-bytes")]
    assert [line for line in out.splitlines() if line.startswith("Figure")] == [f"Figure: {path}" for path in pictures]
    assert drawn == [(over, "accuracy") for over in ("updates", "seconds", "bytes")]
    assert len({path.read_bytes() for path in pictures}) == 3


def test_a_margin_is_in_the_words_of_the_limit(reproduced, write, papers):
    write(FIGURE, ('relation = "at least"\nvalue = 0.15', 'relation = "at least"\nmargin = 0.05\nvalue = 0.15'))
    assert papers("paper/fig1", "--jobs", "1")[0] == 0
    assert "at least 15.0 %, plus 5.0 points" in (FIG1 / "page.md").read_text(encoding="utf-8")


@pytest.mark.long
def test_a_compared_panel_is_run_first(write, papers, monkeypatch):
    path = write(FIGURE + PANELS)
    drawn = []

    def draw(over, runs, target, measure):
        drawn.append([(run.label, run.seed) for run in runs])
        return curves(over, runs, target, measure)

    monkeypatch.setattr(comparison.plots, "curves", draw)
    code, out, err = papers("paper/fig1b", "--jobs", "1")
    assert (code, err) == (0, "")
    assert re.findall(r"^paper/\w+", out, re.MULTILINE) == ["paper/fig1a", "paper/fig1b"]
    (row,) = re.findall(r"More clients are no slower.*", out)
    assert "open" in row
    own = [(label, seed) for label in ("fedavg", "fedasync") for seed in (1, 2)]
    assert drawn == [own, [*own, ("fedasync (fig1a)", 1), ("fedasync (fig1a)", 2)]]
    page = (RESULTS / "fig1b-quick" / "page.md").read_text(encoding="utf-8")

    def best(panel, label):
        folders = [RESULTS / f"fig1{panel}-quick" / f"{label}-seed{seed}" for seed in (1, 2)]
        return np.array([read(folder).history["accuracy"].max() for folder in folders])

    accuracy = Measure("accuracy", higher_is_better=True, is_share=True)
    few = mean_in_words(best("a", "fedasync"), accuracy.write, "")
    assert f"at least that of fedasync (fig1a), {few}, give or take 0.9" in page
    ahead = {
        panel: mean_in_words(best(panel, "fedavg") - best(panel, "fedasync"), accuracy.write_difference, "")
        for panel in "ab"
    }
    assert f"best accuracy of fedavg less that of fedasync: {ahead['b']} | close to" in page
    assert f"close to that of fedavg (fig1a) less that of fedasync (fig1a), {ahead['a']}, within 0.9" in page
    assert "10 clients" in page
    # Without its compared panel a figure has no result.
    (few, many), results = load(path), Path("runs/reproduce")
    assert result_of(few, "quick", results) is not None
    assert result_of(many, "quick", results) is not None
    shutil.rmtree(RESULTS / "fig1a-quick" / "fedasync-seed2")
    assert result_of(many, "quick", results).seeds == [1]
    assert [one.n for one in result_of(many, "quick", results).findings] == [1] * 6
    shutil.rmtree(RESULTS / "fig1a-quick" / "fedasync-seed1")
    assert result_of(many, "quick", results) is None
    code, again, _ = papers("paper/fig1b", "--jobs", "1")
    assert code == 0
    assert "2 of 4 runs are finished" in again
    assert "4 of 4 runs are finished" in again


def test_a_diverged_run_has_no_number_and_its_claim_is_open(write, papers):
    write(FIGURE, ("[algorithms.fedavg]", "[algorithms.fedavg]\nlocal = { lr = 3e38 }"))
    code, out, err = papers("paper/fig1", "--jobs", "1")
    assert (code, err) == (0, "")
    row = re.search("FedAvg learns.*", out).group()
    assert "unknown" in row
    assert "open" in row
    assert (FIG1 / "figure.png").exists()
