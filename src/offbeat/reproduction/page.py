"""The pages of results: our figures, our numbers, the papers', and the verdicts."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from offbeat.experiments import units
from offbeat.experiments.export import write_file
from offbeat.reproduction.outcome import Finding, Outcome


def write_pages(outcomes: Sequence[Outcome], folder: Path) -> Path:
    """Write a page a paper, with figures, and one that lists all claims; return that one's path.

    Args:
        outcomes: What was run, in the order of the pages.
        folder: Where they go.

    Raises:
        OffbeatError: The folder cannot be written.
    """
    papers: dict[str, list[Outcome]] = {}
    for one in outcomes:
        papers.setdefault(one.path.parent.name, []).append(one)
    for paper, its in papers.items():
        parts = [f"# {its[0].section.paper}\n"]
        for one in its:
            figures = one.draw(folder / "images", f"{one.name.replace('/', '-')}-{one.scale}")
            parts.append(section_of(one, [f"images/{path.name}" for path in figures]))
        write_file(folder / f"{paper}.md", "\n".join(parts).encode())
    return write_file(folder / "index.md", _index(papers).encode())


def section_of(outcome: Outcome, figures: Sequence[str]) -> str:
    """Return what a page says of a figure, in Markdown.

    Args:
        outcome: The figure.
        figures: The pictures' addresses.
    """
    section, settings = outcome.section, outcome.settings
    lines = [
        f"## {section.figure}, {outcome.scale} scale\n",
        f"{section.question}\n",
        *(f"![{section.figure}]({figure})\n" for figure in figures),
        *((outcome.table(), "") if outcome.table else ()),
        "| claim | in the paper | ours | | verdict |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {one.claim} | {one.paper} | {one.ours} | {one.other} | {_in_words(one)} |" for one in outcome.findings),
        "",
        f"{outcome.world}.\n",
        f"`{outcome.command}` · `{outcome.path.as_posix()}` · {units.duration(60 * outcome.minutes)} of one core\n",
    ]
    if outcome.tuned:
        lines += ["Tuned:\n", *(f"- {line}" for line in outcome.tuned), ""]
    if section.differs or settings.set:
        lines += ["Other than in the paper:\n", *(f"- {line}" for line in section.differs)]
        lines += [f"- at this scale `{change}`" for change in settings.set]
        lines.append("")
    return "\n".join(lines)


def _in_words(finding: Finding) -> str:
    return finding.verdict.replace(finding.word, f"**{finding.word}**")


def _index(papers: dict[str, list[Outcome]]) -> str:
    found = [finding for its in papers.values() for one in its for finding in one.findings]
    words = Counter(finding.word for finding in found)
    lines = [
        "# The papers, reproduced\n",
        "What the papers claim, run again. *Holds*: in every seed; *does not hold*: in none; *differs*: in some.",
        "Bounds are judged by the mean over the runs. Each page has the figures, the numbers with their 95 % intervals",
        "over the seeds, and the commands.\n",
        f"Of {len(found)} claims {words['holds']} hold, {words['does not hold']} do not, {words['differs']} differ.\n",
    ]
    for paper, outcomes in papers.items():
        lines += [f"## [{outcomes[0].section.paper}]({paper}.md)\n", "| | claim | scale | verdict |"]
        lines += ["| --- | --- | --- | --- |"]
        for one in outcomes:
            lines += [f"| {one.section.figure} | {f.claim} | {one.scale} | {_in_words(f)} |" for f in one.findings]
        lines.append("")
    return "\n".join(lines)
