"""The pages of results: our figures, our numbers, the papers', and the verdicts."""

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from pathlib import Path

from offbeat import units
from offbeat.report.export import write_file
from offbeat.reproduction.outcome import Finding, Key, Record

IMAGES = "images"
"""The folder of the figures, beside the pages."""


def write_pages(
    records: Sequence[Record], outdated: Container[Key], missing: Mapping[str, Sequence[str]], folder: Path
) -> Path:
    """Write a page a paper and one that lists all claims; return that one's path.

    Args:
        records: What was run, in the order of the pages; the figures are in ``folder / IMAGES``.
        outdated: Which of them are from before their files changed.
        missing: For each scale the names of the figures that were not run at it.
        folder: Where they go.

    Raises:
        OffbeatError: The folder cannot be written.
    """
    papers: dict[str, list[Record]] = {}
    for one in records:
        papers.setdefault(paper_of(one), []).append(one)
    for paper, its in papers.items():
        old = [one for one in its if one.key in outdated]
        parts = [f"# {its[0].paper}\n"]
        parts += [_how_to_update(old, len(its), folder)] if old else []
        parts += [section_of(one, f"{IMAGES}/", is_outdated=one in old) for one in its]
        write_file(folder / f"{paper}.md", "\n".join(parts).encode())
    return write_file(folder / "index.md", _index(papers, outdated, missing).encode())


def paper_of(record: Record) -> str:
    """Return what the page that a record is on is called."""
    return record.name.partition("/")[0]


def section_of(record: Record, folder: str = "", *, is_outdated: bool = False) -> str:
    """Return what a page says of a figure, in Markdown.

    Args:
        record: The figure.
        folder: The address of its pictures, with a slash at its end.
        is_outdated: Whether its file has other settings or claims by now.
    """
    lines = [
        f"## {record.figure}, {record.scale} scale\n",
        *([f"*Outdated: measured before the settings or claims in `{record.file}` changed.*\n"] if is_outdated else []),
        f"{record.question}\n",
        *(f"![{record.figure}]({folder}{figure})\n" for figure in record.figures),
        *((record.table, "") if record.table else ()),
        "| claim | in the paper | ours | | verdict |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {one.claim} | {one.paper} | {one.ours} | {one.other} | {_in_words(one)} |" for one in record.findings),
        "",
        f"{record.world}.\n",
        f"`{record.command}` · `{record.file}` · {units.duration(60 * record.minutes)} of one core\n",
    ]
    if record.tuned:
        lines += ["Tuned:\n", *(f"- {line}" for line in record.tuned), ""]
    if record.differs:
        lines += ["Other than in the paper:\n", *(f"- {line}" for line in record.differs), ""]
    return "\n".join(lines)


def _in_words(finding: Finding) -> str:
    return finding.verdict.replace(finding.word, f"**{finding.word}**")


def _how_to_update(records: Sequence[Record], figures: int, folder: Path) -> str:
    """Return the note on a page's outdated figures and how to measure them again."""
    names: dict[str, list[str]] = {}
    for one in records:
        names.setdefault(one.scale, []).append(one.name)
    commands = ", ".join(
        f"`offbeat reproduce {' '.join(its)} --scale {scale} --pages {folder.as_posix()}`"
        for scale, its in names.items()
    )
    return (
        f"**Outdated: {len(records)} of {figures} figures on this page**, as marked, were measured before the settings "
        f"or claims in their files changed. To measure them again: {commands}.\n"
    )


def _index(papers: dict[str, list[Record]], outdated: Container[Key], missing: Mapping[str, Sequence[str]]) -> str:
    every = [one for its in papers.values() for one in its]
    found = [finding for one in every if one.key not in outdated for finding in one.findings]
    words = Counter(finding.word for finding in found)
    lines = [
        "# The papers, reproduced\n",
        "What the papers claim, run again. *Holds*: in every seed; *does not hold*: in none; *differs*: in some;",
        "*undecided*: a target, or a number of updates, was not reached in some, and what came before does not tell.",
        "Bounds are judged by the mean over the runs. Each page has the figures, the numbers with their 95 % intervals",
        "over the seeds, and the commands.\n",
        f"Of {len(found)} claims {words['holds']} hold, {words['does not hold']} do not, {words['differs']} differ, "
        f"{words['undecided']} are undecided.\n",
    ]
    if any(one.key in outdated for one in every):
        lines += [
            "*Outdated* verdicts are from before the settings or claims in a figure's file changed. They are not",
            "counted; the figure's page has the command that measures it again.\n",
        ]
    lines += [f"Not run yet at the {scale} scale: {', '.join(names)}.\n" for scale, names in missing.items() if names]
    for paper, records in papers.items():
        lines += [f"## [{records[0].paper}]({paper}.md)\n", "| | claim | scale | verdict |"]
        lines += ["| --- | --- | --- | --- |"]
        for one in records:
            mark = ", *outdated*" if one.key in outdated else ""
            lines += [f"| {one.figure} | {f.claim} | {one.scale} | {_in_words(f)}{mark} |" for f in one.findings]
        lines.append("")
    return "\n".join(lines)
