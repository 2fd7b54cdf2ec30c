"""Records of figures that were run before, or on another machine."""

import contextlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from studies.tests.papers.conftest import FIGURE, leave_blank, run_papers

PAGES = Path("docs")
pytestmark = pytest.mark.usefixtures("blank_pictures")


@pytest.fixture(scope="module")
def two_folder(tmp_path_factory, reproduced_folder):
    folder = tmp_path_factory.mktemp("two") / "folder"
    shutil.copytree(reproduced_folder[0], folder)
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        leave_blank(patch)
        second = FIGURE.replace('"Figure 1"', '"Figure 2"').replace("seeds = [1, 2]", "seeds = [3]")
        Path("papers/paper/fig2.toml").write_text(second, encoding="utf-8")
        shutil.rmtree("runs")
        return folder, run_papers("paper/fig2", "--jobs", "1", "--pages", str(PAGES))


@pytest.fixture
def two(experiments, two_folder, tmp_path):
    """Two figures on the pages, ``paper/fig1``, whose runs are gone, and ``paper/fig2``; the output of the second."""
    shutil.copytree(two_folder[0], tmp_path, dirs_exist_ok=True)
    return two_folder[1]


def page(name="paper.md"):
    return (PAGES / name).read_text(encoding="utf-8")


def contents():
    return {path: path.read_bytes() for path in PAGES.rglob("*") if path.is_file()}


def test_pages_keep_earlier_results(two):
    assert "Removed" not in two
    assert page().index("## Figure 1, quick scale") < page().index("## Figure 2, quick scale")
    assert page().count("All claims are open: fewer than 5 seeds.\n") == 2
    assert page().count("| FedAvg learns something | it does | ≥ 0 points† |\n") == 2
    assert page().count("| FedAvg is perfect | it is [sic] | ≥ 0 points |\n") == 2
    assert re.search(
        r"^paper,paper/fig1,quick,Figure 1,proxy,FedAvg is perfect,FedAvg is perfect,it is \[sic\],.*,open,"
        r"fewer than 5 seeds,.*,1 2,[\d.]+ [\d.]+,0.999 0.999,no$",
        page("claims.csv"),
        re.M,
    )
    assert {path.name for path in (PAGES / "images").iterdir()} == {
        "paper-fig1-quick.png",
        "paper-fig2-quick.png",
        "summary-paper.png",
    }
    # The two figures have the same claims, which count once.
    assert "| [A paper](paper.md) | – | – | 0 / 0 / 0 / 3 | – |" in page("index.md")
    assert "- full scale: paper/fig1, paper/fig2\n" in page("index.md")
    assert "- quick scale" not in page("index.md")


@pytest.mark.parametrize("arguments", [("paper/fig2", "--jobs", "1"), ()])
def test_pages_are_the_same_when_nothing_has_changed(two, papers, arguments):
    before = contents()
    assert papers(*arguments, "--pages", str(PAGES))[0] == 0
    assert contents() == before


def test_pages_can_be_written_from_the_ledger_alone(two, papers):
    before = contents()
    for path in [*PAGES.glob("*.md"), *PAGES.glob("*.csv")]:
        path.unlink()
    shutil.rmtree("runs")
    assert papers("--pages", str(PAGES)) == (0, f"Pages: {PAGES / 'index.md'}\n", "")
    assert contents() == before


def test_list_shows_the_verdicts_of_the_ledger(two, papers):
    shutil.rmtree("runs")
    _, out, _ = papers("--list", "--pages", str(PAGES))
    assert re.search(r"paper/fig1 .*FedAvg learns.*quick: open", out)
    assert re.search(r"paper/fig2 .*FedAvg learns.*quick: open", out)
    assert "quick: open" not in papers("--list")[1]
    shutil.copytree(PAGES, "docs/results")
    assert papers("--list")[1] == out


@pytest.mark.parametrize(("old", "new"), [("lr = 0.1", "lr = 0.2"), ("value = 0.15", "value = 0.16")])
def test_a_record_is_outdated_until_its_figure_is_run_again(two, write, papers, old, new):
    write(FIGURE, (old, new))
    assert re.search(r"paper/fig1 .*not run", papers("--list", "--pages", str(PAGES))[1])
    code, out, _ = papers("paper/fig2", "--jobs", "1", "--pages", str(PAGES))
    assert code == 0
    assert "Outdated, since their settings or claims have changed: paper/fig1 (quick)\n" in out
    assert (
        "**Outdated: 1 of 2 figures on this page**, as marked, were measured before their settings or claims changed; "
        "their verdicts are open. To measure them again: `offbeat papers paper/fig1 --scale quick --pages docs`."
    ) in page()
    _, first, second = page().split("## Figure ")
    assert "`fig1`: *Outdated.*\n" in first
    assert "utdated" not in second
    assert "| [A paper](paper.md) | – | – | 0 / 0 / 0 / 3 | – |" in page("index.md")
    assert [line.rpartition(",")[2] for line in page("claims.csv").splitlines()[1:]] == ["yes"] * 3 + ["no"] * 3
    _, out, _ = papers("paper/fig1", "--jobs", "1", "--pages", str(PAGES))
    assert "utdated" not in out
    assert "utdated" not in page()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Everything.", "Everything again."),
        ("FedAvg learns something", "FedAvg learns much"),
        ("Digits, by softmax.", "Digits, by softmax again."),
        ('paper = "it does"', 'paper = "it may"'),
    ],
)
def test_texts_are_updated_without_another_run(two, write, papers, old, new):
    write(FIGURE, (old, new))
    code, out, _ = papers("--pages", str(PAGES))
    assert (code, "utdated" in out) == (0, False)
    assert new.removeprefix('paper = "').rstrip('"') in page() + page("claims.csv")


def test_an_outdated_record_keeps_its_texts(two, write, papers):
    write(FIGURE, ("lr = 0.1", "lr = 0.2"), ("FedAvg learns something", "FedAvg learns much"))
    papers("--pages", str(PAGES))
    assert "FedAvg learns much" not in page()


def test_a_figure_without_a_file_is_removed(two, experiments, papers):
    (experiments / "paper" / "fig1.toml").unlink()
    code, out, _ = papers("paper/fig2", "--jobs", "1", "--pages", str(PAGES))
    assert code == 0
    assert "Removed, since no file has them: paper/fig1 (quick)\n" in out
    assert "Figure 1" not in page()
    assert {path.name for path in (PAGES / "images").iterdir()} == {"paper-fig2-quick.png", "summary-paper.png"}


def test_the_page_of_a_paper_without_figures_is_removed(two, experiments, papers):
    (experiments / "other").mkdir()
    (experiments / "other" / "fig1.toml").write_text(FIGURE.replace("lr = 0.1", "lr = 0.2"), encoding="utf-8")
    for path in (experiments / "paper").iterdir():
        path.unlink()
    papers("other", "--jobs", "1", "--pages", str(PAGES))
    assert {path.name for path in PAGES.glob("*.md")} == {"index.md", "other.md"}
    assert "summary-paper.png" not in {path.name for path in (PAGES / "images").iterdir()}


def test_list_shows_the_last_duration_divided_by_the_cores(two, papers, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    ledger = json.loads(page("ledger.json"))
    ledger[0]["minutes"] = 8.4
    (PAGES / "ledger.json").write_text(json.dumps(ledger), encoding="utf-8")
    _, out, _ = papers("--list", "--pages", str(PAGES))
    assert re.search(r"paper/fig1 .*quick: 2\.1 min", out)
    assert "full: 3 h" in out  # never run: the duration in the file


@pytest.mark.parametrize("content", ["", "[{}]", '{"name": "paper/fig1"}', "\xff"])
def test_a_broken_ledger_is_one_line(two, papers, content):
    before = (PAGES / "paper.md").read_bytes()
    (PAGES / "ledger.json").write_text(content, encoding="latin-1")
    for arguments in (("--list",), ("paper/fig2", "--jobs", "1")):
        code, out, err = papers(*arguments, "--pages", str(PAGES))
        assert (code, out) == (2, "")  # before anything is run
        assert err.startswith(f"offbeat: {PAGES / 'ledger.json'} is broken: restore an older one, or remove it")
        assert err.count("\n") == 1
    assert (PAGES / "paper.md").read_bytes() == before


def test_a_ledger_of_votes_can_be_read(two, papers):
    ledger = json.loads(page("ledger.json"))
    for record in ledger:
        for key in ("file_figure", "file_question", "seeds", "evidence", "published"):
            del record[key]
        texts = ("claim", "paper", "ours", "other", "quantity", "values")
        record["findings"] = [
            {**{key: finding[key] for key in texts}, "word": "holds", "held": 2, "seeds": 2}
            for finding in record["findings"]
        ]
    (PAGES / "ledger.json").write_text(json.dumps(ledger), encoding="utf-8")
    shutil.rmtree("runs")
    assert papers("--pages", str(PAGES))[0] == 0
    assert page().count("All claims are open: not tested.\n") == 2
    assert json.loads(page("ledger.json"))[0]["findings"][0]["verdict"] == "open"


def test_more_seeds_replace_fewer_but_not_the_other_way_round(two, papers):
    assert papers("paper/fig1", "--jobs", "1", "--seeds", "1", "--pages", str(PAGES))[0] == 0
    records = {one["name"]: one for one in json.loads(page("ledger.json"))}
    assert records["paper/fig1"]["seeds"] == [1, 2]
    _, out, _ = papers("--pages", str(PAGES))
    assert "Kept as they were, since the ledger has more seeds: paper/fig1 (quick)\n" in out
    _, out, _ = papers("paper/fig1", "--jobs", "1", "--pages", str(PAGES))
    assert "1 of 2 runs are finished" not in out
    assert "Kept" not in out


def test_the_ledger_has_the_numbers_of_each_seed(two):
    (finding,) = [one for one in json.loads(page("ledger.json"))[0]["findings"] if one["claim"] == "FedAvg is perfect"]
    assert finding["n"] == len(finding["ours_by_seed"]) == 2
    assert finding["other_by_seed"] == [0.999, 0.999]
    logs = [ours - 0.999 for ours in finding["ours_by_seed"]]
    assert finding["effect"]["kind"] == "difference"
    assert finding["effect"]["value"] == pytest.approx(sum(logs) / 2, rel=1e-4)
    assert finding["effect"]["allowed"] == [0.0, None]


def test_the_ledger_has_the_processor_time_of_the_compared_runs(two):
    record = json.loads(page("ledger.json"))[1]
    (seconds,) = [one["processor_seconds"] for one in record["findings"] if one["claim"] == "FedAvg is perfect"]
    timing = Path("runs/reproduce/paper/fig2-quick/fedavg-seed3/timing.json").read_text(encoding="utf-8")
    assert seconds == pytest.approx(json.loads(timing)["processor_seconds"], abs=0.051)  # in tenths of a second
