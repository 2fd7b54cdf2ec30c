"""The result of a sweep: a table, ``sweep.csv`` and ``best.toml``."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from offbeat_core.errors import OffbeatError
from rich import box
from rich.table import Table

from offbeat import units
from offbeat.config.algorithm_table import as_inline_toml
from offbeat.config.experiment_file import experiment_of
from offbeat.report.export import csv_bytes, write_file
from offbeat.sweeps.record import Searched, Trials
from offbeat.sweeps.sweep import Sweep
from offbeat.sweeps.trials import LAST, Trial, at_point, best_of

_SHOWN = 10  # trials of an algorithm in the terminal; sweep.csv has all


def best_first(trials: Sequence[Trial]) -> list[Trial]:
    """Return trials by score; of equal ones the earlier first."""
    return sorted(trials, key=lambda trial: -trial.score)


def tables(searched: Searched, trials: Trials) -> list[Table]:
    """Return a table for each algorithm, its best trials first."""
    name = searched.measure.replace("_", " ")
    made: list[Table] = []
    for label, own in trials.items():
        keys = list(searched.spaces[label])
        table = Table("Trial", *keys, name, title=label, title_justify="left", box=box.SIMPLE)
        for trial in best_first(own)[:_SHOWN]:
            own_settings = (as_inline_toml(trial.point[key]) for key in keys)
            table.add_row(str(trial.number), *own_settings, value_text(searched, trial.value))
        made.append(table)
    return made


def value_text(searched: Searched, value: float) -> str:
    """Return the value of a trial as text."""
    if not math.isfinite(value):
        return "diverged"
    return units.percent(value) if searched.measure == "accuracy" else units.number(value)


def target_text(searched: Searched, target: float) -> str:
    """Return the target of a sweep as text."""
    return units.level(target) if searched.measure == "accuracy" else units.number(target)


def result_text(searched: Searched, trial: Trial) -> str:
    """Return a trial's time to the target, or its value without one."""
    if trial.seconds is None or searched.target is None:
        return value_text(searched, trial.value)
    return f"{target_text(searched, searched.target)} after {units.duration(trial.seconds)}"


def budget(searched: Searched) -> str:
    """Return how many trials each algorithm had, and how they are compared."""
    numbers = {label: searched.number(label) for label in searched.spaces}
    seeds = f"seed{'s' * (len(searched.seeds) > 1)} {', '.join(map(str, searched.seeds))}"
    if len(set(numbers.values())) == 1:
        each = ", an equal budget per algorithm" if len(numbers) > 1 else ""
        words = f"{next(iter(numbers.values()))} trials of {', '.join(numbers)}{each}"
    else:
        words = ", ".join(
            f"{number} trials of {label}{'' if number == searched.trials else ' (all combinations)'}"
            for label, number in numbers.items()
        )
    measure = f"mean of the last {LAST} evaluations of {searched.measure.replace('_', ' ')}"
    if searched.target is not None:
        measure = f"time to {target_text(searched, searched.target)}, where it was missed by the {measure},"
    return f"{words}, by the {measure} over {seeds} ({searched.better} is better)"


def write_csv(searched: Searched, trials: Trials, folder: Path) -> Path:
    """Write ``sweep.csv``: a line for each trial, the best of each algorithm first."""
    keys = list(dict.fromkeys(key for space in searched.spaces.values() for key in space))
    lines = [
        (
            trial.label,
            trial.number,
            *(_cell(trial.point[key]) if key in trial.point else "" for key in keys),
            trial.value if math.isfinite(trial.value) else "",
            *([] if searched.target is None else ["" if trial.seconds is None else trial.seconds]),
        )
        for own in trials.values()
        for trial in best_first(own)
    ]
    header = ["label", "trial", *keys, f"mean_of_last_{LAST}_{searched.measure}"]
    header += [] if searched.target is None else [f"seconds_to_{searched.target:g}"]
    return write_file(folder / "sweep.csv", csv_bytes([header, *lines]))


def _cell(value: Any) -> object:
    return as_inline_toml(value) if isinstance(value, list | dict) else value


def best_trials(trials: Trials) -> dict[str, Trial]:
    """Return the best trial of each label."""
    best = {label: own[best_of([trial.score for trial in own])] for label, own in trials.items()}
    for label, trial in best.items():
        if not math.isfinite(trial.score):
            raise OffbeatError(f"every trial of {label} diverged: choose other values")
    return best


def settings(best: Mapping[str, Trial]) -> str:
    """Return the best settings as TOML that can be pasted into the experiment's file."""
    return "\n\n".join(
        "\n".join([f"[algorithms.{label}]", *(f"{key} = {as_inline_toml(v)}" for key, v in trial.point.items())])
        for label, trial in best.items()
    )


def write_best(sweep: Sweep, best: Mapping[str, Trial], folder: Path) -> Path:
    """Write ``best.toml``: the experiment with each algorithm at its best point."""
    algorithms = {label: at_point(sweep.table, label, trial.point) for label, trial in best.items()}
    table = {
        **sweep.table,
        "name": f"{sweep.experiment.name}-best",
        "algorithms": {**sweep.table["algorithms"], **algorithms},
    }
    # Paths are absolute in it, as in a run's config.toml, since it lies in another folder.
    content = experiment_of(table, sweep.path).model_dump(exclude_unset=True, exclude_none=True)
    comment = f"# The best of {budget(sweep.searched)}.\n\n"
    return write_file(folder / "best.toml", (comment + tomli_w.dumps(content)).encode())
