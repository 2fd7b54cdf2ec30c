import contextlib
import json
import math
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from scipy import stats

from offbeat.statistics.hypothesis_tests import Range
from offbeat_studies.papers.figures.catalogue import find, read_all, result_of
from offbeat_studies.papers.figures.theorem import TheoremClaim, ratio_test
from offbeat_studies.papers.theory.measured_bound import Row
from studies.tests.papers.conftest import RESULTS, assert_one_line, run_papers

THEOREM = """
[tool.papers.reproduction]
paper = "A paper"
figure = "Theorem 9"
question = "How it grows."

[tool.papers.scales.quick]
minutes = 0.1

[tool.papers.theory]
seeds = 12

[tool.papers.theory.sweeps]
async_comm_sgd_rounds = [50, 3200]
fedbuff_staleness = [0, 1]

[[tool.papers.claims]]
name = "It falls"
quantity = "slope"
of = "async_comm_sgd_rounds"
relation = "at most"
value = 0.0
paper = "it does"

[[tool.papers.claims]]
name = "It is tight"
quantity = "smallest_ratio"
of = "async_comm_sgd_rounds"
relation = "at least"
value = 0.9
paper = "it is not said"

[[tool.papers.claims]]
name = "It holds"
quantity = "largest_ratio"
of = "fedbuff_staleness"
relation = "at most"
value = 1.0
paper = "Theorem 9"
"""
# A tenth of the server steps.
SHORT = THEOREM.replace("fedbuff_staleness", "async_comm_sgd_gap").replace("[0, 1]", "[1, 2]")


@pytest.fixture
def theorem(experiments):
    path = experiments / "paper" / "theorem9.toml"
    path.write_text(THEOREM, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def measured_folder(tmp_path_factory):
    """A folder in which ``paper/theorem9`` has been measured in another process, and the output."""
    folder = tmp_path_factory.mktemp("measured")
    with contextlib.chdir(folder):
        Path("papers/paper").mkdir(parents=True)
        Path("papers/paper/theorem9.toml").write_text(SHORT, encoding="utf-8")
        return folder, run_papers("paper/theorem9", "--jobs", "1")


@pytest.fixture
def measured(measured_folder, tmp_path, monkeypatch):
    """The output of ``paper/theorem9``, which has been measured in the working folder."""
    folder, output = measured_folder
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return output


class InThisProcess(ThreadPoolExecutor):
    """A pool that starts no process."""

    def __init__(self, jobs, context, begin):
        super().__init__(jobs)


@pytest.mark.long
def test_each_claim_has_its_verdict_and_a_theorem_is_measured_once(measured, papers, monkeypatch):
    out, theorem = measured, Path("papers/paper/theorem9.toml")
    lines = {name: next(line for line in out.splitlines() if name in line) for name in ("falls", "tight", "It holds")}
    assert lines["falls"].rstrip().endswith(" supported")
    assert lines["tight"].rstrip().endswith("contradicted")
    assert "at most 1 " in lines["It holds"]
    folder = RESULTS / "theorem9-quick"
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    page = (folder / "page.md").read_text(encoding="utf-8")
    assert "| It falls | it does | power of the number, async_comm_sgd_rounds: -" in page
    assert "12 runs at each value of rounds 50, 3200; gap 1, 2.\n" in page
    result = folder / "points.json"
    before = result.read_bytes()
    monkeypatch.setattr("offbeat_studies.papers.figures.theorem.ProcessPoolExecutor", InThisProcess)
    papers("paper/theorem9")
    assert result.read_bytes() == before  # the processor seconds are not the same twice
    assert "quick: supported" in papers("--list")[1].partition("theorem9")[2]
    theorem.write_text(SHORT.replace("seeds = 12", "seeds = 13"), encoding="utf-8")
    assert "quick: supported" not in papers("--list")[1].partition("theorem9")[2]
    assert papers("paper/theorem9")[0] == 0
    assert json.loads(result.read_text())["theory"]["seeds"] == 13


def test_a_slope_has_a_chosen_limit_and_a_ratio_the_theorems(theorem):
    (found,) = find("paper/theorem9", [theorem.parents[1]])
    assert [claim.has_chosen_limit for claim in found.claims] == [True, False, False]


def test_theorems_are_listed_with_the_other_figures(theorem):
    assert [one.name for one in read_all([Path("papers")])] == ["paper/fig1", "paper/theorem9"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("fedbuff_staleness = [0, 1]", "fedbuff_stale = [0, 1]", "fedbuff_staleness"),
        ("[50, 3200]", "[0, 3200]", "values must be 1 or more"),
        ("[50, 3200]", "[50]", "async_comm_sgd_rounds"),
        ('of = "async_comm_sgd_rounds"', 'of = "async_comm_sgd_gap"', "async_comm_sgd_rounds"),
        ('quantity = "largest_ratio"', 'quantity = "slope"', "a slope needs values above 0"),
        ("seeds = 12", "seeds = 1", "seeds"),
        ('quantity = "smallest_ratio"', 'quantity = "largest_ratio"', "largest_ratio goes with at most"),
        ("[tool.papers.scales.quick]", "[tool.papers.scales.tiny]", "scales"),
        ('of = "fedbuff_staleness"', 'of = ["fedbuff_staleness", "fedbuff_steps"]', "did you mean 'fedbuff_staleness'"),
        (
            'of = "async_comm_sgd_rounds"',
            'of = ["async_comm_sgd_rounds", "fedbuff_staleness"]',
            "a slope is of one sweep",
        ),
    ],
)
def test_a_mistake_is_one_line(theorem, before, after, message):
    assert before in THEOREM
    theorem.write_text(THEOREM.replace(before, after, 1), encoding="utf-8")
    assert_one_line(lambda: find("paper/theorem9", [Path("papers")]), message)


@pytest.mark.long
def test_a_ratio_of_several_sweeps_is_that_of_the_most_extreme_point(measured):
    several = 'of = ["async_comm_sgd_rounds", "async_comm_sgd_gap"]'
    text = SHORT.replace('of = "async_comm_sgd_gap"', several)
    Path("papers/paper/theorem9.toml").write_text(text, encoding="utf-8")
    points = json.loads((RESULTS / "theorem9-quick" / "points.json").read_text())["points"]
    rows = [point["row"] for sweep in points.values() for point in sweep]
    worst = max(rows, key=lambda row: row["measured"] / row["bound"])
    (figure,) = find("paper/theorem9", [Path("papers")])
    found = result_of(figure, "quick", Path("runs/reproduce")).findings[2]
    assert found.effect.value == pytest.approx(worst["measured"] / worst["bound"])
    half_width = worst["half_width"] / worst["bound"] * 2.200985 / 1.96  # Student's, with 11 degrees of freedom
    assert found.effect.high - found.effect.value == pytest.approx(half_width)
    assert (found.n, found.method, found.is_for) == (12, "t, over the runs", True)


def test_a_ratio_claim_is_about_every_point():
    allowed = Range(-math.inf, 1.0)
    claim = TheoremClaim(name="c", paper="p", quantity="largest_ratio", of="x", relation="at most", value=1.0)
    means = (0.9, 0.001), (0.8, 0.2), (1.3, 0.1)
    sure, unsure, bad = (Row("c", "s", mean, 1.96 * error, 1.0) for mean, error in means)
    found = ratio_test(claim, [sure, unsure], 10, allowed)
    assert found.effect == 0.9
    assert found.p_for == pytest.approx(stats.t.sf(1.0, 9))  # by the unsure one: (1 − 0.8) / 0.2
    against = ratio_test(claim, [sure, unsure, bad], 10, allowed)
    assert against.p_against == pytest.approx(3 * stats.t.sf(3.0, 9))  # Bonferroni
    assert not against.is_for
