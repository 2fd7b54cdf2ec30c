"""The pages docs/theory.md and docs/theory-measurements.md agree with each other and with the commands."""

import re
import shlex
from pathlib import Path

import pytest

from offbeat_studies.papers.theory import page

ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs/theory.md").read_text(encoding="utf-8")
MEASUREMENTS = (ROOT / "docs/theory-measurements.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("algorithm", "claim"),
    [
        ("FedBuff", "FedBuff, Theorem 1"),
        ("FedLaAvg", "FedLaAvg, Theorem 3"),
        ("AsyncCommSGD", "AsyncCommSGD, Theorem 2.4"),
        ("FedLuck", "FedLuck, mended"),
    ],
)
def test_the_summary_has_the_largest_ratio_of_each_theorem(algorithm, claim):
    cells = [line.strip("| ").split(" | ") for line in MEASUREMENTS.splitlines() if line.startswith(f"| {claim} |")]
    largest = max(float(ratio) for *_, ratio, result in cells if result == "holds")
    (summary,) = (line for line in PAGE.splitlines() if line.startswith(f"| [{algorithm}]("))
    assert float(summary.strip("| ").rpartition(" ")[2]) == pytest.approx(largest, rel=0.05)


def test_the_page_is_written_between_the_marks(monkeypatch):
    monkeypatch.setattr(page, "table", lambda: r"| a \1 |")
    fresh = page.page(MEASUREMENTS)
    assert "from here -->\n\n| a \\1 |\n\n<!-- to here -->" in fresh
    assert page.page(fresh) == fresh
    assert fresh.partition("<!--")[0] == MEASUREMENTS.partition("<!--")[0]
    assert fresh.rpartition("<!--")[2] == MEASUREMENTS.rpartition("<!--")[2]


def test_the_figure_shows_what_the_page_says():
    uniform, dependent = (0.5, 0.5), (0.9, 0.1)
    assert page.measured(uniform, 5000) < page.bound(5000) < page.measured(dependent, 5000)
    assert page.measured(dependent, 1280) < page.bound(1280)
    assert page.FIGURE.stat().st_size < 100_000


def test_the_command_prints_what_the_page_says(offbeat, monkeypatch):
    monkeypatch.chdir(ROOT)
    command = re.search(r"\$ offbeat (theory bound experiments/.*?)\n```", PAGE, re.DOTALL)[1].replace("\\\n", "")
    code, out, _ = offbeat(*shlex.split(command))
    assert code == 0
    printed = {" ".join(line.split()) for line in out.splitlines()}
    (said,) = (text for text in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL) if "broken" in text)
    assert {" ".join(line.split()) for line in said.splitlines()} <= printed
