"""Pages made from records; the committed ones are those of the ledger."""

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from papers.figures.catalogue import read_all
from papers.figures.figure_result import FigureRecord, Finding
from papers.results.ledger import read_ledger, write_ledger
from papers.results.pages import page_of, write_pages

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"


def test_the_committed_pages_are_those_of_the_ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    shutil.copy(RESULTS / "ledger.json", tmp_path)
    write_ledger([], read_all(Path("papers")), tmp_path)
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert set(written) == {path.name for path in RESULTS.iterdir()} - {"images", "what_to_use.md"}
    for name, text in written.items():
        committed = (RESULTS / name).read_text(encoding="utf-8")
        assert text.replace(tmp_path.as_posix(), "docs/results") == committed, f"{name}: run `make results`"
    figures = {figure for record in read_ledger(tmp_path).values() for figure in record.figures}
    assert figures == {path.name for path in (RESULTS / "images").iterdir()}


def finding(claim, word, held=0, quantity="time", **values):
    return Finding(claim, "p", f"time of a: {values.get('a')}", "at most 2", word, held, 3, quantity, values)


A = FigureRecord(
    "paper/fig1a", "quick", "f", "papers/paper/fig1.toml", "A paper", "Figure 1 (a)", "Digits. Few.", "the world", 1.0,
    (finding("c1", "holds", 3, a="1 s", b="2 s"), finding("c2", "does not hold"), finding("c3", "differs", 2, a="1 s")),
    ("a.png",), None, ("tried 3",), ("Everything.", "At this scale: `x=1`."), "Figure 1", "Digits.",
)  # fmt: skip
B = replace(
    A, name="paper/fig1b", figure="Figure 1 (b)", question="Digits. Many.", figures=("b.png",),
    findings=(finding("c2", "undecided", quantity="bytes", a="3 MB"),),
)  # fmt: skip


@pytest.fixture
def page(tmp_path):
    """A function that returns the page of records."""

    def write(*records, outdated=()):
        write_pages(records, outdated, {"quick": [], "full": ["paper/fig1a"]}, tmp_path)
        return (tmp_path / "paper.md").read_text(encoding="utf-8")

    return write


def test_the_panels_of_a_file_share_a_table(page):
    text = page(A, B)
    table = "| claim | fig1a | fig1b |\n| --- | --- | --- |\n| c1 | yes | – |\n| c2 | **no** | open |\n"
    assert f"{table}| c3 | 2 of 3 | – |\n" in text
    numbers = "|  |  | a | b |\n| --- | --- | --- | --- |\n| fig1a | time | 1 s | 2 s |\n"
    assert f"{numbers}| fig1b | bytes | 3 MB | – |\n" in text
    counts = Counter({"## Figure 1, quick scale": 1, "\nDigits.\n": 1, "`fig1a`: Few.\n": 1, "`fig1b`: Many.\n": 1})
    counts |= {"- Everything.": 1, "images/a.png": 1, "images/b.png": 1}
    assert {part: text.count(part) for part in counts} == counts
    assert (
        "`python -m papers paper/fig1a paper/fig1b --scale quick` · `papers/paper/fig1.toml` · 2 min of one core"
        in text
    )
    assert "Of 4 claims 1 hold, 1 do not, 1 differ between seeds, 1 are undecided." in text


def test_another_scale_has_its_own_section(page):
    text = page(A, replace(A, scale="full"))
    assert text.count("| claim | fig1a |\n") == 2
    assert "## Figure 1, full scale" in text


def test_outdated_claims_are_not_counted(page, tmp_path):
    text = page(A, B, outdated=[A.key])
    assert "Of 1 claims 0 hold, 0 do not, 0 differ between seeds, 1 are undecided." in text
    assert "`fig1a`: Few. *Outdated.*" in text
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "| [A paper](paper.md) | 1 | 0 | 0 | 0 | 1 | 3 |" in index
    assert "Not run yet at the full scale: paper/fig1a." in index


def test_a_table_of_all_algorithms_replaces_the_main_numbers(page):
    text = page(replace(A, table="| | time to 80 % |"))
    assert "| | time to 80 % |\n" in text
    assert "| fig1a | time |" not in text


def test_the_csv_files_have_everything(page, tmp_path):
    page(A, B)
    claims = (tmp_path / "claims.csv").read_text(encoding="utf-8").splitlines()
    assert claims[0] == "figure,scale,title,claim,paper,ours,compared,verdict,held,seeds,outdated"
    assert claims[1] == "paper/fig1a,quick,Figure 1 (a),c1,p,time of a: 1 s,at most 2,holds,3,3,no"
    assert len(claims) == 5
    settings = (tmp_path / "settings.csv").read_text(encoding="utf-8")
    assert "paper/fig1a,quick,Figure 1 (a),the world,tried 3," in settings


def test_the_page_of_one_figure_has_all_its_numbers():
    text = page_of(A)
    assert "| c1 | p | time of a: 1 s | at most 2 | **holds (3 of 3 seeds)** |" in text
    assert "![Figure 1 (a)](a.png)" in text
    assert "- tried 3" in text
