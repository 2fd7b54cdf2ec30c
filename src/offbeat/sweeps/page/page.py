"""Report on a sweep: best settings, importances, all trials, in one page."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_core.number_checks import is_number

from offbeat.report.collect import collect
from offbeat.report.export import write_file
from offbeat.report.page.settings_and_versions import origin, package_versions
from offbeat.runs.directory import Run
from offbeat.runs.settings import setting_of
from offbeat.runs.tuning_record import holds_tuning
from offbeat.sweeps.edges import edge
from offbeat.sweeps.importance import Importance, importances
from offbeat.sweeps.page.parallel_data import parallel_data, setting_text
from offbeat.sweeps.record import Searched, Trials, read_record
from offbeat.sweeps.result import best_first, budget, settings, target_text, value_text
from offbeat.sweeps.search_space import Choices, Values
from offbeat.sweeps.trials import Trial
from offbeat.units import duration
from offbeat.web.self_contained_page import file_text, render, script_of

_FIFTHS = ("best fifth", "second", "third", "fourth", "worst fifth")
_HERE = "offbeat.sweeps.page"
_THERE = "offbeat.report.page"


def write_sweep_report(folder: Path, command: str, output: Path | None = None) -> Path:
    """Write ``report.html`` from a sweep's ``sweep.json`` and runs.

    It goes into the sweep's folder, or into ``output``.
    """
    searched, trials = read_record(folder)
    try:
        runs = collect([folder])
    except OffbeatError:  # none has begun
        runs = []
    return write_file(
        (output or folder) / "report.html",
        sweep_page(searched, trials, runs, command, is_tuning=holds_tuning(folder)).encode(errors="backslashreplace"),
    )


def sweep_page(
    searched: Searched, trials: Trials, runs: Sequence[Run], command: str, *, is_tuning: bool = False
) -> str:
    """Return the page; it loads nothing.

    With ``is_tuning`` the trials are those before a comparison.
    """
    best = best_of_labels(trials)
    scripts = (_THERE, "elements.js"), (_THERE, "tables.js"), (_HERE, "parallel.js")
    return render(
        file_text(_HERE, "sweep.html"),
        file_text(_THERE, "report.css") + file_text(_HERE, "sweep.css"),
        script_of(*scripts),
        {"charts": [parallel_data(searched, label, own) for label, own in trials.items()]},
        title=f"{'Tuning' if is_tuning else 'Sweep'} of {searched.name}",
        is_tuning=is_tuning,
        finding=finding(searched, best),
        budget=f"{budget(searched)}.",
        world=setting_of(runs[0]) if runs else "",
        origin=origin(runs),
        command=command,
        edges=list(edge_lines(searched, best)),
        best=settings(best) if best else "",
        labels=[_label(searched, label, own) for label, own in trials.items()],
        fifths=_FIFTHS,
        measure=searched.measure.replace("_", " "),
        target=None if searched.target is None else target_text(searched, searched.target),
        versions=package_versions(runs),
    )


def best_of_labels(trials: Trials) -> dict[str, Trial]:
    """Return the best trial of each label that has one that did not diverge."""
    firsts = [(label, best_first(own)[0]) for label, own in trials.items() if own]
    return {label: trial for label, trial in firsts if math.isfinite(trial.score)}


def finding(searched: Searched, best: dict[str, Trial]) -> str:
    """Return the first line: the best value of each label, the best label first."""
    if not best:
        return "No trial has a result yet."
    measure = searched.measure.replace("_", " ")
    ordered = best_first(list(best.values()))
    values = ", ".join(f"{value_text(searched, trial.value)} by {trial.label}" for trial in ordered)
    if searched.target is None:
        return f"Best {measure}: {values}."
    target = target_text(searched, searched.target)
    reached = [f"{trial.label} after {duration(trial.seconds)}" for trial in ordered if trial.seconds is not None]
    if not reached:
        return f"No trial reached {target}. Best {measure}: {values}."
    missed = [trial.label for trial in ordered if trial.seconds is None]
    but = f"; not reached by {', '.join(missed)}" if missed else ""
    return f"Soonest at {target}: {', '.join(reached)}{but}."


def edge_lines(searched: Searched, best: dict[str, Trial]) -> Iterator[str]:
    """Yield a line for each best value at an end of what was tried."""
    for label, trial in best.items():
        for key, values in searched.spaces[label].items():
            if end := edge(values, trial.point[key]):
                value = setting_text(trial.point[key])
                yield f"{label}: {key} = {value} is at the {end} end of {tried(values)}"


def tried(values: Values) -> str:
    """Return the values of a setting in words."""
    if isinstance(values, Choices):
        return " | ".join(map(setting_text, values.values))
    how = " (log)" if values.log else ""
    return f"{setting_text(values.low)} to {setting_text(values.high)}{how}"


def _label(searched: Searched, label: str, own: Sequence[Trial]) -> dict[str, Any]:
    space, ordered = searched.spaces[label], best_first(own)
    number = searched.number(label)
    diverged = sum(not math.isfinite(trial.score) for trial in own)
    state = f"{len(own)} of {number} trials so far" if len(own) < number else f"{number} trials"
    found = importances(space, own)
    return {
        "name": label,
        "state": state + (f", {diverged} diverged" if diverged else ""),
        "settings": [
            {
                "key": key,
                "tried": tried(values),
                "best": setting_text(ordered[0].point[key]) if own else "",
                "best_value": _value(ordered[0].point[key]) if own else None,
                "quarter": _quarter(values, [trial.point[key] for trial in ordered[: math.ceil(len(own) / 4)]]),
                **_importance(found[key]),
            }
            for key, values in space.items()
        ],
        "trials": [
            {
                "number": trial.number,
                "cells": [
                    *({"text": setting_text(trial.point[key]), "value": _value(trial.point[key])} for key in space),
                    {
                        "text": value_text(searched, trial.value),
                        "value": trial.value if math.isfinite(trial.value) else None,
                    },
                    *([] if searched.target is None else [_time(trial)]),
                ],
            }
            for trial in ordered
        ],
    }


def _importance(found: Importance | None) -> dict[str, Any]:
    if found is None:
        return {"importance": None, "importance_text": "too few trials to tell"}
    text = f"{100 * found.share:.0f} %"
    note = "" if found.is_clear or text == "0 %" else ", perhaps by chance"
    return {"importance": found.share, "importance_text": text + note}


def _quarter(values: Values, best: Sequence[Any]) -> str:
    if not best:
        return ""
    if isinstance(values, Choices):
        return " | ".join(setting_text(one) for one in values.values if one in best)
    ends = dict.fromkeys((setting_text(min(best)), setting_text(max(best))))
    return " to ".join(ends)


def _time(trial: Trial) -> dict[str, Any]:
    return {"text": "missed" if trial.seconds is None else duration(trial.seconds), "value": trial.seconds}


def _value(value: Any) -> float | None:
    return float(value) if is_number(value) else None
