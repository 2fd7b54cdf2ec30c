"""Pages of results: an index, a page for each paper, CSV files with all numbers."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from offbeat import units
from offbeat.report.export import csv_bytes, write_file
from papers.figures.figure_result import FigureRecord, Finding, Key

IMAGES = "images"  # the folder of the figures, beside the pages
CLAIMS = "claims.csv"
SETTINGS = "settings.csv"
_WORDS = ("holds", "does not hold", "differs", "undecided")


def write_pages(
    records: Sequence[FigureRecord], outdated: Collection[Key], missing: Mapping[str, Sequence[str]], folder: Path
) -> Path:
    """Write the pages and the CSV files; return the index's path.

    ``outdated`` are the records that were measured before their settings or claims changed, ``missing`` for each scale
    the names of the figures that have not been run at it.
    """
    papers: dict[str, list[FigureRecord]] = {}
    for one in records:
        papers.setdefault(paper_of(one), []).append(one)
    for paper, group in papers.items():
        write_file(folder / f"{paper}.md", _paper_page(group, outdated, folder).encode())
    write_file(folder / CLAIMS, _claims_csv(records, outdated))
    write_file(folder / SETTINGS, _settings_csv(records, outdated))
    return write_file(folder / "index.md", _index(papers, outdated, missing).encode())


def paper_of(record: FigureRecord) -> str:
    """Return the name of the page that a record is on."""
    return record.name.partition("/")[0]


def page_of(record: FigureRecord) -> str:
    """Return the page of a single figure, for the folder of its pictures."""
    lines = [
        f"## {record.figure}, {record.scale} scale\n",
        f"{record.question}\n",
        *(f"![{record.figure}]({figure})\n" for figure in record.figures),
        *((record.table, "") if record.table else ()),
        *_table(
            ("claim", "in the paper", "ours", "", "verdict"),
            ((one.claim, one.paper, one.ours, one.other, f"**{one.verdict}**") for one in record.findings),
        ),
        f"{record.world}.\n",
    ]
    if record.tuned:
        lines += ["Tuning:\n", *(f"- {line}" for line in record.tuned), ""]
    return "\n".join([*lines, *_differences([record]), _command([record])])


def _paper_page(records: Sequence[FigureRecord], outdated: Collection[Key], folder: Path) -> str:
    files: dict[tuple[str, str], list[FigureRecord]] = {}
    for one in records:
        files.setdefault((one.file, one.scale), []).append(one)
    lines = [
        f"# {records[0].paper}\n",
        f"{_summary(_current(records, outdated))} In the tables, *yes* means that a claim holds in every seed, *no* "
        f"in none, *2 of 3* in so many, *open* that it is undecided. All numbers are in [{CLAIMS}]({CLAIMS}), tuning "
        f"and settings in [{SETTINGS}]({SETTINGS}).\n",
    ]
    if old := [one for one in records if one.key in outdated]:
        lines.append(_update_note(old, len(records), folder))
    for group in files.values():
        lines += _file_section(group, outdated)
    return "\n".join(lines)


def _file_section(records: Sequence[FigureRecord], outdated: Collection[Key]) -> list[str]:
    """Return the section on the figures of one file at one scale."""
    first = records[0]
    lines = [f"## {first.file_figure or first.figure}, {first.scale} scale\n"]
    lines += [f"{first.file_question}\n"] if first.file_question else []
    for one in records:
        question = one.question.removeprefix(one.file_question).strip()
        mark = " *Outdated.*" if one.key in outdated else ""
        if question or mark:
            lines.append(f"`{_panel(one)}`: {question}{mark}".replace(":  *", ": *") + "\n")
        lines += [f"![{one.figure}]({IMAGES}/{figure})\n" for figure in one.figures]
        lines += [one.table, ""] if one.table else []
    verdicts = [{finding.claim: _short_verdict(finding) for finding in one.findings} for one in records]
    claims = dict.fromkeys(claim for own in verdicts for claim in own)
    lines += _table(
        ("claim", *map(_panel, records)), ((claim, *(own.get(claim, "–") for own in verdicts)) for claim in claims)
    )
    numbers = [_main_numbers(one) for one in records if not one.table]
    if labels := list(dict.fromkeys(label for _, values in numbers for label in values)):
        rows = (
            (_panel(one), quantity, *(values.get(label, "–") for label in labels))
            for one, (quantity, values) in zip(records, numbers, strict=True)
        )
        lines += _table(("", "", *labels), rows)
    return [*lines, f"{first.world}.\n", *_differences(records), _command(records)]


def _panel(record: FigureRecord) -> str:
    return record.name.rpartition("/")[2]


def _short_verdict(finding: Finding) -> str:
    if finding.word == "differs":
        return f"{finding.held} of {finding.seeds}"
    return {"holds": "yes", "does not hold": "**no**", "undecided": "open"}[finding.word]


def _main_numbers(record: FigureRecord) -> tuple[str, dict[str, str]]:
    """Return the quantity that most claims are about, and its values by algorithm."""
    counts = Counter(finding.quantity for finding in record.findings if finding.values)
    if not counts:
        return "", {}
    quantity = counts.most_common(1)[0][0]
    values = [finding.values for finding in record.findings if finding.quantity == quantity]
    return quantity, {label: value for one in values for label, value in one.items()}


def _differences(records: Sequence[FigureRecord]) -> list[str]:
    """Return the differences from the paper, each once."""
    lines = dict.fromkeys(line for one in records for line in one.differs)
    return ["Different from the paper:\n", *(f"- {line}" for line in lines), ""] if lines else []


def _command(records: Sequence[FigureRecord]) -> str:
    """Return the command that measures figures of one file and scale, and its time."""
    duration = units.duration(60 * sum(one.minutes for one in records))
    names = " ".join(one.name for one in records)
    return f"`python -m papers {names} --scale {records[0].scale}` · `{records[0].file}` · {duration} of one core\n"


def _current(records: Iterable[FigureRecord], outdated: Collection[Key]) -> Counter[str]:
    """Count the verdicts that are not outdated."""
    return Counter(finding.word for one in records if one.key not in outdated for finding in one.findings)


def _summary(words: Counter[str]) -> str:
    return (
        f"Of {words.total()} claims {words['holds']} hold, {words['does not hold']} do not, {words['differs']} differ "
        f"between seeds, {words['undecided']} are undecided."
    )


def _update_note(records: Sequence[FigureRecord], figures: int, folder: Path) -> str:
    """Return the note on outdated figures, with the commands that measure them again."""
    names: dict[str, list[str]] = {}
    for one in records:
        names.setdefault(one.scale, []).append(one.name)
    commands = ", ".join(
        f"`python -m papers {' '.join(group)} --scale {scale} --pages {folder.as_posix()}`"
        for scale, group in names.items()
    )
    return (
        f"**Outdated: {len(records)} of {figures} figures on this page**, as marked, were measured before their "
        f"settings or claims changed, and are not counted. To measure them again: {commands}.\n"
    )


def _index(
    papers: Mapping[str, Sequence[FigureRecord]], outdated: Collection[Key], missing: Mapping[str, Sequence[str]]
) -> str:
    every = [one for group in papers.values() for one in group]
    rows: list[tuple[str, ...]] = []
    for paper, group in papers.items():
        words = _current(group, outdated)
        old = sum(len(one.findings) for one in group if one.key in outdated)
        counts = (words.total(), *(words[word] for word in _WORDS), old)
        rows.append((f"[{group[0].paper}]({paper}.md)", *map(str, counts)))
    lines = [
        "# The papers, reproduced\n",
        f"{_summary(_current(every, outdated))}\n",
        *_table(("", "claims", "hold", "do not", "differ", "undecided", "outdated"), rows),
        "A claim *holds* if it does in every seed, and *does not hold* if it does in none; it *differs* if the seeds",
        "disagree. It is *undecided* if a run ended before it reached a target or a number of updates, and the rest",
        "leaves the verdict open. Bounds are judged by the mean over the runs. *Outdated* claims were measured before",
        "the settings or claims in the figure's file changed; they are not counted.\n",
        f"[{CLAIMS}]({CLAIMS}) has every claim with the paper's words, our numbers with 95 % intervals over the seeds,",
        f"and the verdict; [{SETTINGS}]({SETTINGS}) has every figure's settings and tuning. The pages are written by",
        "`python -m papers --pages docs/results` from `ledger.json`.\n",
    ]
    lines += [f"Not run yet at the {scale} scale: {', '.join(names)}.\n" for scale, names in missing.items() if names]
    return "\n".join(lines)


def _claims_csv(records: Sequence[FigureRecord], outdated: Collection[Key]) -> bytes:
    header = "figure", "scale", "title", "claim", "paper", "ours", "compared", "verdict", "held", "seeds", "outdated"
    rows = (
        (
            *(one.name, one.scale, one.figure, finding.claim, finding.paper, finding.ours, finding.other, finding.word),
            *(("", "") if finding.seeds is None else (finding.held, finding.seeds)),
            "yes" if one.key in outdated else "no",
        )
        for one in records
        for finding in one.findings
    )
    return csv_bytes([header, *rows])


def _settings_csv(records: Sequence[FigureRecord], outdated: Collection[Key]) -> bytes:
    header = "figure", "scale", "title", "world", "tuning", "differs", "core_minutes", "file", "command", "outdated"
    rows = (
        (
            *(one.name, one.scale, one.figure, one.world, "\n".join(one.tuned), "\n".join(one.differs), one.minutes),
            *(one.file, one.command, "yes" if one.key in outdated else "no"),
        )
        for one in records
    )
    return csv_bytes([header, *rows])


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table, and an empty one."""
    lines = [header, ["---"] * len(header), *rows]
    return [*(f"| {' | '.join(cells)} |" for cells in lines), ""]
