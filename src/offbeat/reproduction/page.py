"""The pages of results: our figure, our numbers, the paper's, and the verdicts."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from offbeat.experiments import plots, units
from offbeat.experiments.estimate import Estimate
from offbeat.experiments.export import write_file
from offbeat.experiments.measure import main_measure, target_for
from offbeat.experiments.run_directory import Run
from offbeat.experiments.run_settings import world_of
from offbeat.reproduction.catalogue import Outcome
from offbeat.reproduction.verdict import Verdict

_DRAW: dict[str, Callable[[Sequence[Run], float | None], Figure]] = {
    "seconds": plots.over_time,
    "versions": plots.over_versions,
    "updates": plots.over_updates,
    "bytes": plots.over_bytes,
}
_DOTS_PER_INCH = 100
_WORDS = {
    "final": "{measure} at the end",
    "best": "best {measure}",
    "tail": "mean {measure} of the last {last}",
    "swing": "swing of the {measure} in the last {last}",
    "seconds_to_target": "virtual time to {target}",
    "updates_to_target": "visits to {target}",
    "versions_to_target": "versions to {target}",
    "bytes_to_target": "bytes to {target}",
}


def write_figure(outcome: Outcome, path: Path) -> Path:
    """Draw our version of a figure from what was run; return its path.

    Raises:
        OffbeatError: The folder cannot be written.
    """
    drawn = _DRAW[outcome.reproduction.section.over](outcome.runs, target_for(outcome.runs))
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
    return write_file(path, buffer.getvalue())


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
        papers.setdefault(one.reproduction.path.parent.name, []).append(one)
    for paper, its in papers.items():
        parts = [f"# {its[0].reproduction.section.paper}\n"]
        for one in its:
            name = f"{one.reproduction.name.replace('/', '-')}-{one.scale}.png"
            write_figure(one, folder / "images" / name)
            parts.append(section_of(one, f"images/{name}"))
        write_file(folder / f"{paper}.md", "\n".join(parts).encode())
    return write_file(folder / "index.md", _index(papers).encode())


def section_of(outcome: Outcome, figure: str) -> str:
    """Return what a page says of a figure, in Markdown.

    Args:
        outcome: The figure.
        figure: The picture's address.
    """
    reproduction, section = outcome.reproduction, outcome.reproduction.section
    scale = reproduction.scales[outcome.scale]
    lines = [
        f"## {section.figure}, {outcome.scale} scale\n",
        f"{section.question}\n",
        f"![{section.figure}]({figure})\n",
        "| claim | in the paper | ours | | verdict |",
        "| --- | --- | --- | --- | --- |",
        *(_row(verdict, outcome.runs) for verdict in outcome.verdicts),
        "",
        f"{world_of(outcome.runs)}.\n",
        f"`{command(outcome)}` · `{reproduction.path.as_posix()}` · "
        f"{units.duration(60 * outcome.minutes)} of one core\n",
    ]
    if section.differs or scale.set:
        lines += ["Other than in the paper:\n", *(f"- {line}" for line in section.differs)]
        lines += [f"- at this scale `{change}`" for change in scale.set]
        lines.append("")
    return "\n".join(lines)


def command(outcome: Outcome) -> str:
    """Return the command that makes it."""
    return f"offbeat reproduce {outcome.reproduction.name} --scale {outcome.scale}"


def quantity_line(verdict: Verdict, runs: Sequence[Run]) -> tuple[str, str]:
    """Return our number with its name, and what it is compared with."""
    claim = verdict.claim
    measure = main_measure(runs)
    target = target_for(runs)
    words = _WORDS[claim.quantity].format(
        measure=measure.title,
        last=units.duration(claim.last_seconds or 0.0),
        target="" if target is None else measure.at(target),
    )

    def write(value: Estimate) -> str:
        if claim.quantity == "seconds_to_target":
            return units.duration(value.mean, value.half_width) if _is_finite(value) else "never"
        if claim.quantity == "bytes_to_target":
            return units.size(value.mean, value.half_width) if _is_finite(value) else "never"
        if claim.quantity in ("updates_to_target", "versions_to_target"):
            return units.count(value.mean, value.half_width) if _is_finite(value) else "never"
        return measure.write(value.mean, value.half_width) if _is_finite(value) else "diverged"

    ours = f"{words} of {claim.of}: {write(verdict.ours)}"
    factor = "" if claim.factor == 1 else f"{claim.factor:g} × "
    tolerance = f" {'±' if claim.relation == 'close to' else 'give or take'} {claim.tolerance:g}"
    other = f"{claim.relation} {factor}{f'that of {claim.than}: ' if claim.than else ''}{write(verdict.other)}"
    return ours, other + (tolerance if claim.tolerance else "")


def _is_finite(value: Estimate) -> bool:
    return value.mean == value.mean and abs(value.mean) != float("inf")


def _row(verdict: Verdict, runs: Sequence[Run]) -> str:
    ours, other = quantity_line(verdict, runs)
    return f"| {verdict.claim.name} | {verdict.claim.paper} | {ours} | {other} | {_in_words(verdict)} |"


def _in_words(verdict: Verdict) -> str:
    return f"**{verdict.word}** ({verdict.held} of {verdict.seeds} seeds)"


def _index(papers: dict[str, list[Outcome]]) -> str:
    lines = [
        "# The papers, reproduced\n",
        "What the papers claim, run again. *Holds*: in every seed; *does not hold*: in none; *differs*: in some.",
        "Each page has the figures, the numbers with their 95 % intervals over the seeds, and the commands.\n",
    ]
    for paper, outcomes in papers.items():
        lines += [f"## [{outcomes[0].reproduction.section.paper}]({paper}.md)\n", "| | claim | scale | verdict |"]
        lines += ["| --- | --- | --- | --- |"]
        for one in outcomes:
            figure = one.reproduction.section.figure
            lines += [f"| {figure} | {v.claim.name} | {one.scale} | {_in_words(v)} |" for v in one.verdicts]
        lines.append("")
    return "\n".join(lines)
