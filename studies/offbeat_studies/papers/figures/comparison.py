"""The result of a figure that compares runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from offbeat import units
from offbeat.report import plots
from offbeat.report.export import write_file
from offbeat.report.metrics import cost, main_measure, target_for
from offbeat.report.plot_style import png
from offbeat.runs.directory import Run
from offbeat.runs.settings import setting_of
from offbeat_studies.papers.figures.algorithms_table import Write, algorithms_table, mean_in_words
from offbeat_studies.papers.figures.claim_effects import ClaimEffect, Group, claim_effects
from offbeat_studies.papers.figures.completed_runs import completed_runs, figure_folder
from offbeat_studies.papers.figures.effect_text import effect_of
from offbeat_studies.papers.figures.figure_file import ComparisonFigure
from offbeat_studies.papers.figures.figure_result import DOTS_PER_INCH, FigureResult
from offbeat_studies.papers.figures.finding import Finding
from offbeat_studies.papers.figures.quantities import measure_of
from offbeat_studies.papers.figures.tuning import Points, best_points, edge_labels, tuning_lines, tuning_runs

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
    "bytes_up_to_target": "bytes sent by clients to {target}",
}
_COSTS: dict[str, Write] = {
    "seconds_to_target": units.duration,
    "updates_to_target": units.count,
    "versions_to_target": units.count,
    "bytes_to_target": units.size,
    "bytes_up_to_target": units.size,
}


def comparison_result(figure: ComparisonFigure, scale: str, results: Path) -> FigureResult | None:
    """Return a figure's result for all seeds that are complete; None without one."""
    found = _runs(figure, scale, results)
    others = {panel: _runs(other, scale, results) for panel, other in figure.compared.items()}
    if found is None or None in others.values():
        return None
    panels = [found, *(one for one in others.values() if one is not None)]
    seeds = sorted(set[int].intersection(*({run.seed for run in panel.runs} for panel in panels)))
    if not seeds:
        return None
    runs = found.of(seeds)
    compared = {panel: one.of(seeds) for panel, one in others.items() if one is not None}
    effects = claim_effects(
        figure.claims,
        Group.of(runs, edge_labels(figure.tuning, found.points)),
        {
            panel: Group.of(compared[panel], edge_labels(figure.compared[panel].tuning, one.points))
            for panel, one in others.items()
            if one is not None
        },
        chance=figure.section.chance,
    )
    return FigureResult(
        figure,
        scale,
        setting_of(runs[0]),
        sum(_seconds(run) for run in [*found.tuning, *runs]) / 60,
        [_finding(figure, effect, runs) for effect in effects],
        lambda folder, name: _draw(figure, [*runs, *_compared_runs(figure, compared)], folder, name),
        (lambda: algorithms_table(runs)) if figure.section.table else None,
        tuning_lines(figure.tuning, found.points) if figure.tuning else [],
        seeds,
    )


class _PanelRuns(NamedTuple):
    """The tuned values of a panel, the runs of its tuning and its own."""

    points: Points
    tuning: list[Run]
    runs: list[Run]

    def of(self, seeds: Sequence[int]) -> list[Run]:
        return [run for run in self.runs if run.seed in seeds]


def _seconds(run: Run) -> float:
    return run.real_seconds if run.processor_seconds is None else run.processor_seconds


def _runs(figure: ComparisonFigure, scale: str, results: Path) -> _PanelRuns | None:
    """Return a panel's runs; None unless tuning and a seed have completed."""
    folder = figure_folder(figure.name, scale, results)
    tuning = tuning_runs(figure, scale, folder)
    if tuning is None:
        return None
    points = best_points(figure, scale, tuning)
    runs = completed_runs(figure.experiment(scale, points), folder)
    return None if runs is None else _PanelRuns(points, tuning, runs)


def _compared_runs(figure: ComparisonFigure, compared: Mapping[str, Sequence[Run]]) -> list[Run]:
    """Return runs of other panels that claims compare with, labelled with the panel."""
    # Not those of differences: that would draw two more curves for one number.
    labels = dict.fromkeys(
        (claim.than_panel, claim.than)
        for claim in figure.claims
        if claim.than_panel and claim.than and not claim.than_less
    )
    return [
        replace(run, label=_in_panel(figure, label, panel))
        for panel, label in labels
        for run in compared[panel]
        if run.label == label
    ]


def _in_panel(figure: ComparisonFigure, label: str, panel: str | None) -> str:
    """Return an algorithm's label, followed by its figure if that is another panel."""
    return f"{label} ({figure.compared[panel].name.rpartition('/')[2]})" if panel else label


def _draw(figure: ComparisonFigure, runs: Sequence[Run], folder: Path, name: str) -> list[Path]:
    """Draw the main measure over each axis, then the claims' other measures."""
    section = figure.section
    main = main_measure(runs)
    measures = {measure.name: measure for measure in [main, *(measure_of(c, runs) for c in figure.claims)]}
    pictures = [
        (section.over, main, name),
        *((over, main, f"{name}-over-{over}") for over in section.also_over),
        *((section.over, measure, f"{name}-{measure.name}") for measure in measures.values() if measure != main),
    ]
    paths: list[Path] = []
    for over, measure, file in pictures:
        drawn = _cropped(runs, over) if section.crop else runs
        picture = plots.curves(over, drawn, target_for(runs) if measure == main else None, measure)
        paths.append(write_file(folder / f"{file}.png", png(picture, DOTS_PER_INCH)))
    return paths


def _cropped(runs: Sequence[Run], over: str) -> list[Run]:
    """Return the runs up to the end of the shortest one."""
    xs = [cost(over, run) for run in runs]
    end = min(x[-1] for x in xs)
    return [
        replace(run, history={name: values[x <= end] for name, values in run.history.items()})
        for run, x in zip(runs, xs, strict=True)
    ]


def _finding(figure: ComparisonFigure, measured: ClaimEffect, runs: Sequence[Run]) -> Finding:
    claim, tested = measured.claim, measured.tested
    measure, target = measure_of(claim, runs), target_for(runs)
    quantity = _WORDS[claim.quantity].format(
        measure=measure.title,
        updates=claim.updates,
        last=units.duration(claim.last_seconds or 0.0)
        if claim.last_share is None
        else f"{units.level(claim.last_share)} of the run",
        target="" if target is None else measure.at(target),
    )

    def write(values: Sequence[float]) -> str:
        if claim.quantity in _COSTS:
            return mean_in_words(values, _COSTS[claim.quantity], "never")
        return mean_in_words(values, measure.write if claim.less is None else measure.write_difference, "unknown")

    ours, other = write(measured.ours), write([value / claim.factor for value in measured.other])
    less = f" less that of {claim.less}" if claim.less else ""
    labels = [_in_panel(figure, label, claim.than_panel) for label in (claim.than, claim.than_less) if label]
    factor = "" if claim.factor == 1 else f"{claim.factor:g} × "
    than = f"that of {' less that of '.join(labels)}, " if labels else ""
    if claim.than_mean:
        than = f"the harmonic mean of {', '.join(claim.than_mean)}, "
    sign = "within" if claim.relation == "close to" else "give or take"
    tolerance = f", {sign} {claim.tolerance:g}" if claim.tolerance else ""
    more = "plus" if claim.relation == "at least" else "less"
    margin = f", {more} {measure.write_difference(claim.margin).lstrip('+')}" if claim.margin else ""
    values = {} if claim.less else {claim.of: ours}
    if claim.than and not (claim.than_less or claim.than_panel):
        values[claim.than] = other
    seconds = [run.processor_seconds for run in measured.runs if run.processor_seconds is not None]
    return Finding(
        claim.name,
        claim.paper,
        f"{quantity} of {claim.of}{less}: {ours}",
        f"{claim.relation} {factor}{than}{other}{tolerance}{margin}",
        quantity=quantity,
        values=values,
        n=len(measured.ours),
        ours_by_seed=_by_seed(measured.ours),
        other_by_seed=_by_seed(measured.other),
        effect=effect_of(measured, measure),
        method="" if tested is None else f"{tested.method}{' on log ratios' if measured.is_ratio else ''}",
        p=None if tested is None else tested.p,
        is_for=tested is not None and tested.is_for,
        obstacle=measured.obstacle,
        processor_seconds=round(sum(seconds), 1) if len(seconds) == len(measured.runs) else None,
    )


def _by_seed(values: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(float(f"{value:.6g}") if math.isfinite(value) else None for value in values)
