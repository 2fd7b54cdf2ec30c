"""Pages made from records; the committed ones are those of the ledger."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from offbeat_studies.papers.figures.catalogue import figure_folders, read_all
from offbeat_studies.papers.figures.figure_result import FigureRecord
from offbeat_studies.papers.figures.finding import Effect, Finding
from offbeat_studies.papers.results.claims_table import limit_text
from offbeat_studies.papers.results.ledger import read_ledger, write_ledger
from offbeat_studies.papers.results.pages import write_pages
from offbeat_studies.papers.results.paper_page import page_of

ROOT = Path(__file__).parents[4]
RESULTS = ROOT / "docs" / "results"
pytestmark = pytest.mark.usefixtures("blank_pictures")


def test_the_committed_pages_are_those_of_the_ledger(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    shutil.copy(RESULTS / "ledger.json", tmp_path)
    write_ledger([], read_all(figure_folders()), tmp_path)
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir() if path.is_file()}
    assert set(written) == {path.name for path in RESULTS.iterdir()} - {"images", "planted.md", "what_to_use.md"}
    for name, text in written.items():
        committed = (RESULTS / name).read_text(encoding="utf-8")
        assert text.replace(tmp_path.as_posix(), "docs/results") == committed, f"{name}: run `make results`"
    charts = {path.name for path in (tmp_path / "images").iterdir()}
    figures = {figure for record in read_ledger(tmp_path).values() for figure in record.figures}
    assert figures | charts == {path.name for path in (RESULTS / "images").iterdir()}


def finding(claim, verdict, quantity="time", **changes):
    values = changes.pop("values", {})
    return Finding(claim, "it is", f"time of a: {values.get('a')}", "at most 2", quantity=quantity, values=values,
                   n=10, verdict=verdict, **changes)  # fmt: skip


EFFECT = Effect("ratio", 0.5, 0.4, 0.6, (None, 1.0), "× 0.50 [0.40, 0.60]")
A = FigureRecord(
    "paper/fig1a", "quick", "f", "papers/paper/fig1.toml", "A paper", "Figure 1 (a)", "Digits. Few.", "the world", 1.0,
    (
        finding("c1", "supported", values={"a": "1 s", "b": "2 s"}, effect=EFFECT, headline=True, p_holm=0.002),
        finding("c2", "contradicted", evidence="ours"),
        finding("c3", "open", values={"a": "1 s"}, obstacle="fewer than 5 seeds"),
    ),
    ("a.png", "a-loss.png"), None, ("tried 3",), ("Everything.", "At this scale: `x=1`."), "Figure 1", "Digits.",
    seeds=tuple(range(11, 21)), published={"time, digits": {"a": "7 s"}},
)  # fmt: skip
B = replace(
    A, name="paper/fig1b", figure="Figure 1 (b)", question="Digits. Many.", figures=("b.png",),
    findings=(replace(finding("c2", "not supported", "bytes", values={"a": "3 MB"}, p_holm=0.0504), paper="and so"),),
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
    assert "| claim | in the paper | limit | fig1a | fig1b |\n|---|---|---|---|---|\n" in text
    assert "| c1 | it is | ≤ × 1 | supported · × 0.50 [0.40, 0.60] | – |\n" in text
    assert "| it is; and so |  | **contradicted** | not supported (p = 0.06) |\n" in text
    assert "| c3 | it is |  | open (fewer than 5 seeds) | – |\n" in text
    for part in ("## Figure 1, quick scale", "\nDigits.\n", "`fig1a`: Few.\n", "`fig1b`: Many.\n", "- Everything."):
        assert text.count(part) == 1
    assert "`offbeat papers paper/fig1a paper/fig1b --scale quick --seeds 10` · `papers/paper/fig1.toml`" in text
    assert "Evidence: **proxy**, unless marked; seeds 11 to 20 (n = 10). the world.\n" in text


def test_the_line_above_a_table_says_whose_world_it_names(page):
    assert "(n = 10). fig1a: the world.\n" in page(A, replace(B, world="another world"))


def test_each_picture_has_its_own_alternative_text(page):
    text = page(replace(A, figures=("a.png", "a-over-bytes.png")))
    assert "![Figure 1 (a)](images/a.png)" in text
    assert "![Figure 1 (a), over bytes](images/a-over-bytes.png)" in text


def test_a_page_of_several_papers_names_each(page, tmp_path):
    text = page(A, replace(B, file="papers/paper/fig2.toml", paper="Another paper"))
    assert text.startswith("# Algorithms of other papers\n")
    assert text.index("Paper: A paper.\n") < text.index("`fig1a`") < text.index("Paper: Another paper.\n")
    assert "\n| [Algorithms of other papers](paper.md) |" in (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "Paper: " not in page(A, B)


def test_claims_of_ours_are_marked(page):
    assert "| c2 *(ours)* | it is |  | **contradicted** |\n" in page(A)
    assert "(ours)" not in page(B)


def test_a_page_with_claims_of_ours_alone_says_so_once(page):
    text = page(replace(B, findings=tuple(replace(one, evidence="ours") for one in B.findings)))
    assert "Evidence: **ours**; seeds" in text
    assert "(ours)" not in text


def test_the_papers_numbers_stand_below_ours(page):
    text = page(A, B)
    assert "|  |  | a | b |\n|---|---|---|---|\n| fig1a | time | 1 s | 2 s |\n| fig1b | bytes | 3 MB | – |\n" in text
    assert "| paper, time, digits |  | 7 s | – |\n" in text


def test_all_figures_but_the_first_are_folded(page):
    shown, _, folded = page(A, B).partition("<summary>More figures</summary>")
    assert "images/a.png" in shown
    assert "images/a-loss.png" in folded
    assert "images/b.png" in folded


def test_classes_of_evidence_are_counted_apart(page, tmp_path):
    text = page(A, replace(A, name="paper/fig1b", findings=(finding("c1", "not supported"),)))
    counted = "Proxy: 2 distinct claims, 0 supported, 1 not supported, 0 contradicted, 1 open. "
    assert f"{counted}Ours: 1 distinct claim, 0 supported, 0 not supported, 1 contradicted, 0 open." in text
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "| [A paper](paper.md) | – | – | 0 / 1 / 0 / 1 | 0 / 0 / 1 / 0 |" in index


def test_the_index_has_a_chart_and_the_headlines(page, tmp_path):
    page(A, B)
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "![Claims of paper](images/summary-paper.png)" in index
    assert (tmp_path / "images" / "summary-paper.png").exists()
    assert "| c1 | it is | proxy | ≤ × 1 | × 0.50 [0.40, 0.60] | 10 | supported | 1/0/0/0 |\n" in index
    assert "| c2 |" not in index
    assert "- full scale: paper/fig1a\n" in index
    for word in ("supported", "not supported", "contradicted", "open"):
        assert f"\n| {word} | " in index


def test_the_index_shows_the_tests_that_decide_a_verdict(page, tmp_path):
    wrong = replace(
        A.findings[0], verdict="contradicted", n=6,
        effect=Effect("difference", -0.05, -0.06, -0.04, (-0.014, 0.014), "-5.0 [-6.0, -4.0] points"),
    )  # fmt: skip
    untested = replace(A.findings[0], verdict="open", effect=None, n=3, obstacle="fewer than 5 seeds")
    page(A, replace(A, name="paper/fig1b", findings=(wrong, untested)))
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    row = "proxy | -1.4 to 1.4 points | -5.0 [-6.0, -4.0] | 6 | contradicted | 1/0/1/1 |\n"
    assert f"| c1 | it is | {row}" in index
    page(replace(A, findings=(untested,)))
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "| c1 | it is | proxy | – | – | 3 | open (fewer than 5 seeds) | 0/0/0/1 |\n" in index


def test_the_index_puts_the_classes_of_a_statement_together(page, tmp_path):
    first, second = (replace(A.findings[0], claim=claim, verdict="supported") for claim in ("c1", "c9"))
    page(replace(A, findings=(first, second)), replace(A, scale="full", findings=(replace(first, evidence="paper"),)))
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[:3] for line in index.splitlines() if "× 0.50" in line]
    assert rows == [["| c1", "it is", "proxy"], ["| ″", "″", "paper's setting"], ["| c9", "it is", "proxy"]]


@pytest.mark.parametrize(
    ("effect", "limit"),
    [
        (Effect("difference", 0.05, 0.04, 0.06, (-0.0, None), "+5.0 [+4.0, +6.0] points"), "≥ 0 points"),
        (Effect("difference", 0.05, 0.04, 0.06, (0.01, None), "+5.0 [+4.0, +6.0] points"), "≥ 1 point"),
        (Effect("difference", 0.05, 0.04, 0.06, (-0.02, 0.02), "+5.0 [+4.0, +6.0] points"), "-2 to 2 points"),
        (Effect("difference", 0.05, 0.04, 0.06, (-0.02, 0.02), "+0.050 [+0.040, +0.060]"), "-0.02 to 0.02"),
        (replace(EFFECT, allowed=(0.8, 1.25)), "× 0.8 to 1.25"),
        (Effect("value", 0.5, 0.4, 0.6, (None, 0.6), "0.5 [0.4, 0.6]"), "≤ 0.6"),
        (replace(EFFECT, text=""), "≤ × 1"),
        (Effect("difference", None, None, None, (0.01, None), ""), ""),  # points, or a loss
    ],
)
def test_a_limit_has_the_unit_of_its_effect(effect, limit):
    assert limit_text(replace(A.findings[0], effect=effect)) == limit


def test_a_limit_of_ours_is_marked(page):
    assert "| c1 | it is | ≤ × 1† |" in page(
        replace(A, findings=(replace(A.findings[0], has_own_limit=True), *A.findings[1:]))
    )


def test_points_stand_beside_the_limit_alone(page):
    effect = Effect("difference", 0.05, 0.04, 0.06, (0.02, None), "+5.0 [+4.0, +6.0] points")
    row = "| c1 | it is | ≥ 2 points | supported · +5.0 [+4.0, +6.0] |\n"
    assert row in page(replace(A, findings=(replace(A.findings[0], effect=effect),)))


def test_a_page_says_how_many_tests_are_corrected_together(page):
    assert "corrected for the paper's 2 tests, of all classes and scales;" in page(A, B)
    assert "corrected for the tests of each paper, of" in page(A, replace(B, paper="Another paper"))


def test_a_claim_has_a_row_for_each_limit(page):
    stricter = replace(A.findings[0], effect=replace(EFFECT, allowed=(None, 0.9)))
    untested = replace(A.findings[0], effect=None, verdict="open", obstacle="fewer than 5 seeds")
    text = page(A, replace(B, findings=(stricter,)), replace(B, name="paper/fig1c", findings=(untested,)))
    supported = "supported · × 0.50 [0.40, 0.60]"
    assert f"| c1 | it is | ≤ × 1 | {supported} | – | open (fewer than 5 seeds) |\n" in text
    assert f"| ″ | ″ | ≤ × 0.9 | – | {supported} | – |\n" in text


def test_outdated_figures_are_marked(page):
    text = page(A, B, outdated=[A.key])
    assert "`fig1a`: Few. *Outdated.*" in text
    assert "**Outdated: 1 of 2 figures on this page**" in text
    assert "To measure them again: `offbeat papers paper/fig1a --scale quick --seeds 10 --pages " in text


def test_the_numbers_of_each_quantity_stand_above_the_papers(page):
    more = finding("c4", "supported", "swing", values={"b": "0.1", "c": "0.2"})
    text = page(replace(A, findings=(*A.findings, more, finding("c5", "supported", "bytes", values={"c": "3 MB"}))))
    assert "|  |  | a | b | c |\n|---|---|---|---|---|\n" in text
    swing, size = "| fig1a | swing | – | 0.1 | 0.2 |", "| fig1a | bytes | – | – | 3 MB |"
    assert f"| fig1a | time | 1 s | 2 s | – |\n{swing}\n{size}\n| paper, time, digits |" in text


def test_a_table_of_all_algorithms_replaces_the_numbers(page):
    text = page(replace(A, table="| | time to 80 % |"))
    assert "| | time to 80 % |\n" in text
    assert "| fig1a | time |" not in text


def test_the_csv_files_have_everything(page, tmp_path):
    page(A, B)
    header, first, *others = (tmp_path / "claims.csv").read_text(encoding="utf-8").splitlines()
    row = dict(zip(header.split(","), first.replace('"', "").split(","), strict=True))
    expected = {"effect": "0.5", "low": "0.4", "allowed_high": "1.0", "allowed_low": "", "n": "10", "p_holm": "0.002"}
    assert {key: row[key] for key in expected} == expected
    assert (row["verdict"], row["evidence"], row["in_the_paper"], row["outdated"]) == (
        "supported",
        "proxy",
        "it is",
        "no",
    )
    assert len(others) == 3
    settings = (tmp_path / "settings.csv").read_text(encoding="utf-8")
    assert "paper/fig1a,quick,Figure 1 (a),the world,tried 3," in settings


def test_the_page_of_one_figure_has_all_its_numbers():
    text = page_of(A)
    assert "| c1 | it is | time of a: 1 s | at most 2 | × 0.50 [0.40, 0.60] | supported |" in text
    assert "![Figure 1 (a)](a.png)" in text
    assert "- tried 3" in text
