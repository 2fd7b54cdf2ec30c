"""What came of a figure that is a comparison of runs."""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from offbeat.experiments import plots, run_directory, units
from offbeat.experiments.estimate import estimate
from offbeat.experiments.export import write_file
from offbeat.experiments.measure import Measure, main_measure, target_for
from offbeat.experiments.run_directory import Run
from offbeat.experiments.run_settings import world_of
from offbeat.reproduction.file import Reproduction
from offbeat.reproduction.outcome import Finding, Outcome
from offbeat.reproduction.quantities import measure_of
from offbeat.reproduction.verdict import Verdict, verdicts

_DRAW: dict[str, Callable[[Sequence[Run], float | None, Measure], Figure]] = {
    "seconds": plots.over_time,
    "versions": plots.over_versions,
    "updates": plots.over_updates,
    "bytes": plots.over_bytes,
}
_OVER = {
    "seconds": ("seconds",),
    "versions": ("version",),
    "updates": ("counted", "unused", "lost"),
    "bytes": ("bytes_down", "bytes_up"),
}
_DOTS_PER_INCH = 100
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
_COSTS: dict[str, Callable[[float, float | None], str]] = {
    "seconds_to_target": units.duration,
    "updates_to_target": units.count,
    "versions_to_target": units.count,
    "bytes_to_target": units.size,
}


def outcome_of(reproduction: Reproduction, scale: str, folder: Path) -> Outcome | None:
    """Return what came of a figure; None unless all its runs are there, with the settings that the file has now.

    Args:
        reproduction: The figure.
        scale: How large.
        folder: Where its runs are.
    """
    experiment = reproduction.experiment(scale)
    runs: list[Run] = []
    for label in experiment.algorithms:
        for seed in experiment.seeds:
            path = folder / f"{label}-seed{seed}"
            if not path.exists():
                return None
            runs.append(run_directory.read(path))
            resolved = experiment.resolved(label, seed, runs[-1].config["data"]["name"])
            if experiment.trainer == "auto":  # it was chosen when the run began
                resolved["trainer"] = runs[-1].config["trainer"]
            if not run_directory.is_of(path, resolved):
                return None
    return Outcome(
        reproduction.name,
        reproduction.path,
        reproduction.section,
        scale,
        reproduction.scales[scale],
        world_of(runs),
        sum(run.real_seconds for run in runs) / 60,
        [_finding(verdict, runs) for verdict in verdicts(reproduction.claims, runs)],
        lambda into, name: _draw(reproduction, runs, into, name),
    )


def _draw(reproduction: Reproduction, runs: Sequence[Run], folder: Path, name: str) -> list[Path]:
    """Draw the figure once for each measure that claims are about; the first is the main one."""
    section = reproduction.section
    main = main_measure(runs)
    measures = {measure.name: measure for measure in [main, *(measure_of(c, runs) for c in reproduction.claims)]}
    if section.crop:
        runs = _cropped(runs, _OVER[section.over])
    paths: list[Path] = []
    for measure in measures.values():
        drawn = _DRAW[section.over](runs, target_for(runs) if measure == main else None, measure)
        buffer = io.BytesIO()
        drawn.savefig(buffer, format="png", dpi=_DOTS_PER_INCH, metadata={"Software": None})
        end = "" if measure == main else f"-{measure.name}"
        paths.append(write_file(folder / f"{name}{end}.png", buffer.getvalue()))
    return paths


def _cropped(runs: Sequence[Run], columns: Sequence[str]) -> list[Run]:
    """Return the runs as far as the one that ends first."""
    xs = [np.sum([run.history[column] for column in columns], axis=0) for run in runs]
    end = min(x[-1] for x in xs)
    return [
        replace(run, history={name: values[x <= end] for name, values in run.history.items()})
        for run, x in zip(runs, xs, strict=True)
    ]


def _finding(verdict: Verdict, runs: Sequence[Run]) -> Finding:
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
        known = [value for value in values if math.isfinite(value)]
        if not known:
            return "never" if claim.quantity in _COSTS else "unknown"
        mean = estimate(known)
        text = _COSTS.get(claim.quantity, measure.write)(mean.mean, mean.half_width)
        return text if len(known) == len(values) else f"{text} ({len(known)} of {len(values)} seeds)"

    ours = f"{words} of {claim.of}: {write(verdict.ours)}"
    factor = "" if claim.factor == 1 else f"{claim.factor:g} × "
    tolerance = f" {'±' if claim.relation == 'close to' else 'give or take'} {claim.tolerance:g}"
    other = f"{claim.relation} {factor}{f'that of {claim.than}: ' if claim.than else ''}{write(verdict.other)}"
    return Finding(
        claim.name,
        claim.paper,
        ours,
        other + (tolerance if claim.tolerance else ""),
        verdict.word,
        verdict.held,
        verdict.seeds,
    )
