"""What came of a figure that is a comparison of runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from offbeat import units
from offbeat.report import plots
from offbeat.report.export import write_file
from offbeat.report.metrics import Measure, main_measure, target_for
from offbeat.report.plot_style import png
from offbeat.reproduction.file import Reproduction
from offbeat.reproduction.finished import finished_runs, place
from offbeat.reproduction.outcome import DOTS_PER_INCH, Finding, Outcome
from offbeat.reproduction.quantities import cost, measure_of
from offbeat.reproduction.table import Write, in_words, side_by_side
from offbeat.reproduction.tuning import Changes, best_of, said_of, tried
from offbeat.reproduction.verdict import Verdict, verdicts
from offbeat.runs.directory import Run
from offbeat.runs.settings import world_of

_DRAW: dict[str, Callable[[Sequence[Run], float | None, Measure], Figure]] = {
    "seconds": plots.over_time,
    "versions": plots.over_versions,
    "updates": plots.over_updates,
    "bytes": plots.over_bytes,
}
_WORDS = {
    "final": "{measure} at the end",
    "best": "best {measure}",
    "tail": "mean {measure} of the last {last}",
    "swing": "swing of the {measure} in the last {last}",
    "after_updates": "{measure} after {updates} updates",
    "seconds_to_target": "virtual time to {target}",
    "updates_to_target": "visits to {target}",
    "versions_to_target": "versions to {target}",
    "bytes_to_target": "bytes to {target}",
}
_COSTS: dict[str, Write] = {
    "seconds_to_target": units.duration,
    "updates_to_target": units.count,
    "versions_to_target": units.count,
    "bytes_to_target": units.size,
}


def outcome_of(reproduction: Reproduction, scale: str, results: Path) -> Outcome | None:
    """Return what came of a figure; None unless all its runs are there, with the settings that the file has now.

    Args:
        reproduction: The figure.
        scale: How large.
        results: Where all results are.
    """
    found = _runs(reproduction, scale, results)
    if found is None:
        return None
    changes, tries, runs = found
    beside: dict[str, list[Run]] = {}
    for panel, other in reproduction.beside.items():
        its = _runs(other, scale, results)
        if its is None:
            return None
        beside[panel] = its[-1]
    return Outcome(
        reproduction.name,
        reproduction.path,
        reproduction.section,
        scale,
        reproduction.scales[scale],
        reproduction.fingerprint(scale),
        world_of(runs),
        sum(run.real_seconds for run in [*tries, *runs]) / 60,
        [_finding(reproduction, verdict, runs) for verdict in verdicts(reproduction.claims, runs, beside)],
        lambda into, name: _draw(reproduction, [*runs, *_compared_with(reproduction, beside)], into, name),
        (lambda: side_by_side(runs)) if reproduction.section.table else None,
        said_of(reproduction.tuning, changes) if reproduction.tuning else [],
    )


def _runs(reproduction: Reproduction, scale: str, results: Path) -> tuple[Changes, list[Run], list[Run]] | None:
    """Return what tuning has changed, what was tried, and the runs; None unless all of them are there."""
    folder = place(reproduction.name, scale, results)
    tries = tried(reproduction, scale, folder)
    if tries is None:
        return None
    changes = best_of(reproduction, scale, tries)
    runs = finished_runs(reproduction.experiment(scale, changes), folder)
    return None if runs is None else (changes, tries, runs)


def _compared_with(reproduction: Reproduction, beside: Mapping[str, Sequence[Run]]) -> list[Run]:
    """Return the runs of other panels that claims are about, labelled so that they can be told from the figure's."""
    # What is compared by its distance from another is not: there would be two curves more for one number.
    compared = dict.fromkeys(
        (claim.than_panel, claim.than)
        for claim in reproduction.claims
        if claim.than_panel and claim.than and not claim.than_less
    )
    return [
        replace(run, label=_in_panel(reproduction, label, panel))
        for panel, label in compared
        for run in beside[panel]
        if run.label == label
    ]


def _in_panel(reproduction: Reproduction, label: str, panel: str | None) -> str:
    """Name an algorithm, and its figure if that is another one."""
    return f"{label} ({reproduction.beside[panel].name.rpartition('/')[2]})" if panel else label


def _draw(reproduction: Reproduction, runs: Sequence[Run], folder: Path, name: str) -> list[Path]:
    """Draw the figure once for each measure that claims are about; the first is the main one."""
    section = reproduction.section
    main = main_measure(runs)
    measures = {measure.name: measure for measure in [main, *(measure_of(c, runs) for c in reproduction.claims)]}
    if section.crop:
        runs = _cropped(runs, section.over)
    paths: list[Path] = []
    for measure in measures.values():
        drawn = _DRAW[section.over](runs, target_for(runs) if measure == main else None, measure)
        end = "" if measure == main else f"-{measure.name}"
        paths.append(write_file(folder / f"{name}{end}.png", png(drawn, DOTS_PER_INCH)))
    return paths


def _cropped(runs: Sequence[Run], over: str) -> list[Run]:
    """Return the runs as far as the one that ends first."""
    xs = [cost(over, run) for run in runs]
    end = min(x[-1] for x in xs)
    return [
        replace(run, history={name: values[x <= end] for name, values in run.history.items()})
        for run, x in zip(runs, xs, strict=True)
    ]


def _finding(reproduction: Reproduction, verdict: Verdict, runs: Sequence[Run]) -> Finding:
    claim = verdict.claim
    measure = measure_of(claim, runs)
    target = target_for(runs)
    words = _WORDS[claim.quantity].format(
        measure=measure.title,
        updates=claim.updates,
        last=units.duration(claim.last_seconds or 0.0),
        target="" if target is None else measure.at(target),
    )

    def write(values: Sequence[float]) -> str:
        if claim.quantity in _COSTS:
            return in_words(values, _COSTS[claim.quantity], "never")
        return in_words(values, measure.write, "unknown")

    less = f" less that of {claim.less}" if claim.less else ""
    ours = f"{words} of {claim.of}{less}: {write(verdict.ours)}"
    its = [value / claim.factor for value in verdict.other]
    factor = "" if claim.factor == 1 else f"{claim.factor:g} × "
    tolerance = f", {'within' if claim.relation == 'close to' else 'give or take'} {claim.tolerance:g}"
    its_labels = [_in_panel(reproduction, label, claim.than_panel) for label in (claim.than, claim.than_less) if label]
    than = f"that of {' less that of '.join(its_labels)}, " if its_labels else ""
    other = f"{claim.relation} {factor}{than}{write(its)}"
    return Finding(
        claim.name,
        claim.paper,
        ours,
        other + (tolerance if claim.tolerance else ""),
        verdict.word,
        verdict.held,
        verdict.seeds,
    )
