"""What is kept of figures that were run before, or elsewhere."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

PAGES = Path("docs")


@pytest.fixture
def two(experiments, offbeat):
    """Two figures: ``paper/fig1``, in the ledger only, and ``paper/fig2``, run here; both in the pages."""
    first = (experiments / "paper" / "fig1.toml").read_text(encoding="utf-8")
    second = first.replace('"Figure 1"', '"Figure 2"').replace("seeds = [1, 2]", "seeds = [3]")
    (experiments / "paper" / "fig2.toml").write_text(second, encoding="utf-8")
    offbeat("reproduce", "paper/fig1", "--jobs", "1", "--pages", str(PAGES))
    shutil.rmtree("runs")
    return offbeat("reproduce", "paper/fig2", "--jobs", "1", "--pages", str(PAGES))


def test_pages_keep_what_was_run_before(two):
    code, out, err = two
    assert (code, err) == (0, "")
    assert "No longer" not in out
    page = (PAGES / "paper.md").read_text(encoding="utf-8")
    assert page.index("## Figure 1, quick scale") < page.index("## Figure 2, quick scale")
    assert "holds** (2 of 2 seeds)" in page
    assert "holds** (1 of 1 seeds)" in page
    assert {path.name for path in (PAGES / "images").iterdir()} == {"paper-fig1-quick.png", "paper-fig2-quick.png"}
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    assert "Of 6 claims 4 hold, 2 do not, 0 differ, 0 are undecided." in index
    assert "Not run yet at the full scale: paper/fig1, paper/fig2.\n" in index
    assert "at the quick scale" not in index


def test_the_same_again_changes_nothing(two, offbeat):
    before = {path: path.read_bytes() for path in PAGES.rglob("*") if path.is_file()}
    offbeat("reproduce", "paper/fig2", "--jobs", "1", "--pages", str(PAGES))
    assert {path: path.read_bytes() for path in PAGES.rglob("*") if path.is_file()} == before


def test_the_list_has_verdicts_of_the_ledger(two, offbeat):
    shutil.rmtree("runs")
    _, out, _ = offbeat("reproduce", "--list", "--pages", str(PAGES))
    assert re.search(r"paper/fig1 .*FedAvg learns.*quick: holds", out)
    assert re.search(r"paper/fig2 .*FedAvg learns.*quick: holds", out)
    _, elsewhere, _ = offbeat("reproduce", "--list")
    assert "holds" not in elsewhere
    shutil.copytree(PAGES, "docs/results")
    _, usual, _ = offbeat("reproduce", "--list")
    assert usual == out


@pytest.mark.parametrize(("old", "new"), [("lr = 0.1", "lr = 0.2"), ("value = 0.15", "value = 0.16")])
def test_what_has_other_settings_or_claims_is_marked_as_outdated_until_it_is_run_again(
    two, experiments, offbeat, old, new
):
    fresh = (PAGES / "paper.md").read_text(encoding="utf-8")
    path = experiments / "paper" / "fig1.toml"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    _, listed, _ = offbeat("reproduce", "--list", "--pages", str(PAGES))
    assert re.search(r"paper/fig1 .*not run", listed)
    code, out, _ = offbeat("reproduce", "paper/fig2", "--jobs", "1", "--pages", str(PAGES))
    assert code == 0
    assert "Marked as outdated, since their files have changed: paper/fig1 (quick)\n" in out
    page = (PAGES / "paper.md").read_text(encoding="utf-8")
    assert page.splitlines()[2] == (
        "**Outdated: 1 of 2 figures on this page**, as marked, were measured before the settings or claims in their "
        "files changed. To measure them again: `offbeat reproduce paper/fig1 --scale quick --pages docs`."
    )
    first, second = page.split("## Figure ")[1:]
    note = "*Outdated: measured before the settings or claims in `experiments/paper/fig1.toml` changed.*\n\n"
    assert note in first
    assert "utdated" not in second
    assert page.replace(note, "").replace(page.splitlines()[2] + "\n\n", "") == fresh
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    assert "Of 3 claims 2 hold, 1 do not, 0 differ, 0 are undecided." in index
    assert index.count(", *outdated* |") == 3
    _, out, _ = offbeat("reproduce", "paper/fig1", "--jobs", "1", "--pages", str(PAGES))
    assert "utdated" not in out
    assert "utdated" not in (PAGES / "paper.md").read_text(encoding="utf-8")
    assert "utdated" not in (PAGES / "index.md").read_text(encoding="utf-8")


def test_a_figure_that_no_file_has_goes(two, experiments, offbeat):
    (experiments / "paper" / "fig1.toml").unlink()
    code, out, _ = offbeat("reproduce", "paper/fig2", "--jobs", "1", "--pages", str(PAGES))
    assert code == 0
    assert "No longer in the pages, since no file has them: paper/fig1 (quick)\n" in out
    assert "Figure 1" not in (PAGES / "paper.md").read_text(encoding="utf-8")
    assert [path.name for path in (PAGES / "images").iterdir()] == ["paper-fig2-quick.png"]


def test_the_page_of_a_paper_of_which_nothing_is_left_goes(two, experiments, offbeat):
    (experiments / "other").mkdir()
    text = (experiments / "paper" / "fig1.toml").read_text(encoding="utf-8")
    (experiments / "other" / "fig1.toml").write_text(text.replace("lr = 0.1", "lr = 0.2"), encoding="utf-8")
    for path in (experiments / "paper").iterdir():
        path.unlink()
    offbeat("reproduce", "other", "--jobs", "1", "--pages", str(PAGES))
    assert {path.name for path in PAGES.glob("*.md")} == {"index.md", "other.md"}


def test_the_list_says_how_long_it_took_the_last_time(two, offbeat, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    ledger = json.loads((PAGES / "ledger.json").read_text(encoding="utf-8"))
    ledger[0]["minutes"] = 8.4
    (PAGES / "ledger.json").write_text(json.dumps(ledger), encoding="utf-8")
    _, out, _ = offbeat("reproduce", "--list", "--pages", str(PAGES))
    assert re.search(r"paper/fig1 .*quick: 2\.1 min", out)
    assert "full: 3 h" in out  # never run: as the file says


def test_what_is_said_in_words_is_no_setting(two, experiments, offbeat):
    path = experiments / "paper" / "fig1.toml"
    path.write_text(path.read_text(encoding="utf-8").replace("Everything.", "Nearly everything."), encoding="utf-8")
    _, out, _ = offbeat("reproduce", "--list", "--pages", str(PAGES))
    assert re.search(r"paper/fig1 .*FedAvg learns.*quick: holds", out)


@pytest.mark.parametrize("content", ["", "[{}]", '{"name": "paper/fig1"}', "\xff"])
def test_a_broken_ledger_is_one_line(two, offbeat, content):
    before = (PAGES / "paper.md").read_bytes()
    (PAGES / "ledger.json").write_text(content, encoding="latin-1")
    for arguments in (("--list",), ("paper/fig2", "--jobs", "1")):
        code, out, err = offbeat("reproduce", *arguments, "--pages", str(PAGES))
        assert (code, out) == (2, "")  # before anything is run
        assert err.startswith(f"offbeat: {PAGES / 'ledger.json'} is broken: take an older one, or remove it")
        assert err.count("\n") == 1
    assert (PAGES / "paper.md").read_bytes() == before


def test_it_is_json_that_people_can_compare(two):
    text = (PAGES / "ledger.json").read_text(encoding="utf-8")
    first, second = json.loads(text)
    assert (first["name"], second["name"]) == ("paper/fig1", "paper/fig2")
    assert first["findings"][0]["word"] == "holds"
    assert text.count("\n") > 50
