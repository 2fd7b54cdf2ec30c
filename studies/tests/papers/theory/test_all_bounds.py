"""All bounds together, and the table of them in docs/theory-measurements.md."""

import re
from pathlib import Path

import numpy as np
import pytest

from offbeat_studies.papers.theory import check, page
from offbeat_studies.papers.theory.fedluck import check_fedluck

MEASUREMENTS = Path(__file__).parents[4] / "docs/theory-measurements.md"


@pytest.fixture(scope="module")
def rows():
    """All rows, with the seeds of the page."""
    return check(page.SEEDS)


@pytest.mark.long
def test_every_bound_holds_and_every_counter_example_fails(rows):
    assert [line for line in rows if not line.as_expected] == []


@pytest.mark.long
def test_every_theorem_is_measured(rows):
    assert {line.claim for line in rows if line.should_hold} == {
        "FedBuff, Theorem 1",
        "FedLaAvg, Lemma 2",
        "FedLaAvg, Theorem 1",
        "FedLaAvg, Theorem 3",
        "FedLaAvg, appendix C",
        "AsyncCommSGD, Proposition 2.1",
        "AsyncCommSGD, Theorem 2.2",
        "AsyncCommSGD, Theorem 2.4",
        "FedLuck, mended",
    }
    assert {line.claim for line in rows if not line.should_hold} == {
        "FedBuff, Theorem 1",
        "FedAvg, FedLaAvg's Theorem 1",
        "FedLaAvg, Theorem 1 as printed",
        "FedLuck, Q_l as printed",
    }
    for name in ("full(4)", "round_robin(2, 2)", "random(1/4)", "imbalanced"):
        assert sum(name in line.setting for line in rows) == 4


@pytest.mark.long
def test_the_rows_are_the_same_each_time(rows):
    rng = np.random.default_rng([3, page.SEEDS])
    assert check_fedluck(page.SEEDS, rng) == [line for line in rows if "FedLuck" in line.claim]


@pytest.mark.long
def test_fedbuff_with_unequal_arrivals_converges_to_a_wrong_point(rows):
    (biased,) = [line for line in rows if line.claim.startswith("FedBuff") and not line.should_hold]
    assert biased.measured == pytest.approx(0.64, abs=0.03)  # 0.9 − 0.1 = 0.8 instead of 0
    assert biased.bound == pytest.approx(16 / 100 + 640 * 2 / 10_000)


@pytest.mark.long
def test_fedlaavgs_lemma_2_is_reached(rows):
    assert max(line.ratio for line in rows if line.claim == "FedLaAvg, Lemma 2") == 1


def test_a_number_of_seeds_below_1_is_refused():
    with pytest.raises(ValueError, match="seeds must be at least 1, got 0"):
        check(seeds=0)


@pytest.mark.long
def test_the_pages_table_is_up_to_date(rows):
    """All but the last digits, which are another machine's."""
    text = MEASUREMENTS.read_text(encoding="utf-8")
    table = re.search(r"<!-- .*? from here -->\n(.*)<!-- to here -->", text, re.DOTALL)[1]
    lines = table.strip().splitlines()[2:]
    for line, row in zip(lines, rows, strict=True):
        claim, setting, measured, bound, ratio, result = line.strip("| ").split(" | ")
        assert (claim, _without_worst(setting), result) == (row.claim, _without_worst(row.setting), row.verdict)
        numbers = [float(text.split(" ± ")[0]) for text in (measured, bound, ratio)]
        assert numbers == pytest.approx([row.measured, row.bound, row.ratio], rel=0.01), (
            f"{claim}: run `make theory-docs`"
        )


def _without_worst(setting):
    return re.sub(r", worst t = \d+", "", setting)
