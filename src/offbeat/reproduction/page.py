"""The pages of results: our figures, our numbers, the papers', and the verdicts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from offbeat.experiments import units
from offbeat.experiments.export import write_file
from offbeat.reproduction.outcome import Finding, Record

IMAGES = "images"
"""The folder of the figures, beside the pages."""


def write_pages(records: Sequence[Record], missing: Mapping[str, Sequence[str]], folder: Path) -> Path:
    """Write a page a paper and one that lists all claims; return that one's path.

    Args:
        records: What was run, in the order of the pages; the figures are in ``folder / IMAGES``.
        missing: For each scale the names of the figures that were not run at it.
        folder: Where they go.

    Raises:
        OffbeatError: The folder cannot be written.
    """
    papers: dict[str, list[Record]] = {}
    for one in records:
        papers.setdefault(paper_of(one), []).append(one)
    for paper, its in papers.items():
        parts = [f"# {its[0].paper}\n", *(section_of(one, f"{IMAGES}/") for one in its)]
        write_file(folder / f"{paper}.md", "\n".join(parts).encode())
    return write_file(folder / "index.md", _index(papers, missing).encode())


def paper_of(record: Record) -> str:
    """Return what the page that a record is on is called."""
    return record.name.partition("/")[0]


def section_of(record: Record, folder: str = "") -> str:
    """Return what a page says of a figure, in Markdown.

    Args:
        record: The figure.
        folder: The address of its pictures, with a slash at its end.
    """
    lines = [
        f"## {record.figure}, {record.scale} scale\n",
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


def _index(papers: dict[str, list[Record]], missing: Mapping[str, Sequence[str]]) -> str:
    found = [finding for its in papers.values() for one in its for finding in one.findings]
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
    lines += [f"Not run yet at the {scale} scale: {', '.join(names)}.\n" for scale, names in missing.items() if names]
    for paper, records in papers.items():
        lines += [f"## [{records[0].paper}]({paper}.md)\n", "| | claim | scale | verdict |"]
        lines += ["| --- | --- | --- | --- |"]
        for one in records:
            lines += [f"| {one.figure} | {f.claim} | {one.scale} | {_in_words(f)} |" for f in one.findings]
        lines.append("")
    return "\n".join(lines)
