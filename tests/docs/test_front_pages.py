"""The table beside other libraries: ours runs, theirs is a line of source; README has its first rows."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMPARISON = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
MOST_ROWS = 7
NUMBERS = re.split(" ", "zero one two three four five six seven eight nine ten eleven twelve thirteen")
PACKAGES = {"Flower": "flwr", "NVFlare": "nvflare", "APPFL": "appfl", "pfl-research": "pfl"}


def table(page):
    """Return the rows of cells of the page's table of libraries."""
    lines = page[page.index("|  | Offbeat |") :].split("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not line.startswith("| --")]


def references(page):
    return dict(re.findall(r"^\[([\w-]+)\]: (\S+)$", page, re.MULTILINE))


HEAD, *ROWS = table(COMPARISON)
OURS = [row[1] for row in ROWS]
THEIRS = [(row[0], package, cell) for row in ROWS for package, cell in zip(HEAD[2:], row[2:], strict=True)]


def row_of(beginning):
    (row,) = (row for row in ROWS if row[0].startswith(beginning))
    return row


def plain(cell):
    """Return a cell without its links and commands."""
    return re.sub(r": `[^`]*`(, `[^`]*`)*$", "", re.sub(r"\[([^]]+)\](\[[^]]+\]|\([^)]+\))", r"\1", cell))


def test_the_front_page_has_the_first_rows_in_plain_words():
    shown = table(README)
    assert shown == [[plain(cell) for cell in row] for row in [HEAD, *ROWS]][: len(shown)]
    assert len(shown) - 1 <= MOST_ROWS


def test_the_versions_are_those_that_are_measured():
    for column in HEAD[2:]:
        name, version = column.split()
        requirements = (ROOT / f"studies/peers/requirements/{PACKAGES[name]}.txt").read_text(encoding="utf-8")
        assert re.search(rf"^{PACKAGES[name]}(\[\w+\])?=={version}$", requirements, re.MULTILINE), column


@pytest.mark.parametrize("cell", OURS)
def test_a_claim_of_ours_has_a_command_that_exists_or_is_a_lack(cell, offbeat):
    commands = re.findall(r"`((?:offbeat|make) [^`]+)`", cell)
    for command in commands:
        program, *words = command.split()
        if program == "make":
            assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        else:
            assert offbeat(words[0], "--help")[0] == 0
    assert commands or cell.startswith(("no", "[Linux](")) or cell == "1"  # the row's command is in its first cell


def test_a_private_experiment_is_written_as_the_table_says(offbeat, tmp_path, monkeypatch):
    (cell,) = (cell for cell in OURS if "--template" in cell)
    words = re.search(r"`offbeat ([^`]+)`", cell)[1].split()
    monkeypatch.chdir(tmp_path)
    assert offbeat(*words)[0] == 0
    assert "[privacy]" in (tmp_path / "FOLDER/private.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        ("asynchronous algorithms", {"asynchronous", "semi-asynchronous", "periodic"}),
        ("algorithms in rounds", {"synchronous"}),
    ],
)
def test_our_algorithms_are_counted_right(row, kinds):
    index = (ROOT / "docs/algorithms/index.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| \[[^]]+\]\(\w+\.md\) \| ([\w-]+) \|", index, re.MULTILINE)
    assert row_of(row)[1].startswith(f"{NUMBERS[sum(kind in kinds for kind in found)]}:")


def test_the_speeds_are_the_measured_ones():
    tables = (ROOT / "docs/performance-tables.md").read_text(encoding="utf-8")
    for package, cell in zip(HEAD[2:], row_of("time to train")[2:], strict=True):
        measured = [
            row.split(" | ")[9]
            for row in re.findall(r"^\| (W1 \| fedavg \| .*) \|$", tables, re.MULTILINE)
            if re.split(r"[ ,-]", row.split(" | ")[3])[0] == PACKAGES[package.split()[0]]
        ]
        assert measured == [re.match(r"\[([\d.,]+)\]", cell)[1]], package


@pytest.mark.parametrize(("row", "package", "cell"), THEIRS)
def test_a_claim_about_others_is_a_line_of_their_source(row, package, cell):
    if cell == "–" or row.startswith("time to train"):
        return
    known = references(COMPARISON)
    keys = re.findall(r"\[[^]]+\]\[([\w-]+)\]", cell)
    assert keys, cell
    assert re.sub(r"\[[^]]+\]\[[\w-]+\]|, ", "", cell) == ""
    for key in keys:
        assert key.startswith(package.split()[0].lower().removesuffix("-research")), key
        assert re.fullmatch(
            r"https://github\.com/[\w-]+/[\w-]+/(issues/\d+|pull/\d+|tree/[0-9a-f]{40}/.+|blob/[0-9a-f]{40}/.+#L\d+(-L\d+)?)",
            known[key],
        ), key


def test_every_reference_is_used():
    used = set(re.findall(r"\]\[([\w-]+)\]", COMPARISON))
    assert used == set(references(COMPARISON))
