"""Runs for a report: found in folders, checked, and labelled by experiment."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from offbeat_core.errors import OffbeatError

from offbeat.report.metrics import measures_of
from offbeat.runs import directory as run_directory
from offbeat.runs.directory import EVENTS, OUTCOMES, Run
from offbeat.runs.settings import by_label, differences, experiment_of, settings_differences, world_of

_UNFINISHED = ".unfinished"
_FOLDER = re.compile(r"(?P<label>[^.].*)-seed(?P<seed>[0-9]+)(?P<unfinished>\.unfinished)?")
_LABEL = re.compile(r"[A-Za-z0-9][\w. +-]*")
_MOST_HINTS = 3  # folders that an error message suggests
_COUNTS = ("seconds", "version", "counted", "unused", "lost", "bytes_down", "bytes_up")


def collect(paths: Sequence[Path]) -> list[Run]:
    """Read runs, finished or not, of ``paths``: folders of runs, or of one run.

    They are in the order of ``paths``, those of one experiment by label, then by seed. The unfinished folder of a
    finished run is ignored, and an unfinished run without an evaluation; a folder that is named twice counts once.

    Runs of several experiments with the same label are one algorithm if they differ in the seed only and no seed
    comes twice. Otherwise, and if the experiments' settings differ, they get the label ``EXPERIMENT/LABEL``, where
    EXPERIMENT is the folder of the run; ``Run.config`` keeps the original label.
    """
    folders = {folder.resolve(): folder for path in paths for folder in _folders(path)}
    runs = [run for run in map(_read, folders.values()) if run.finished or len(run.history["seconds"])]
    if not runs:
        raise OffbeatError(f"no run in {', '.join(map(str, paths))} has an evaluation yet: wait for the first one")
    labels: dict[Path, str] = {}
    settings_differ = len({experiment_of(run) for run in runs}) > 1 and bool(settings_differences(runs))
    for label, group in by_label(runs).items():
        labels |= _labels(label, group, runs if settings_differ else ())
    return [replace(run, label=labels[run.path]) for run in runs]


def _folders(path: Path) -> list[Path]:
    try:
        if (path / "config.toml").is_file():
            return [path]
        found = [(match, child) for child in path.iterdir() if (match := _FOLDER.fullmatch(child.name))]
    except OSError as error:
        raise OffbeatError(f"cannot read {path}: {error.strerror}; name a folder that offbeat wrote") from None
    names = {child.name for _, child in found}
    runs = [
        (match["label"], int(match["seed"]), child)
        for match, child in found
        if child.is_dir() and not (match["unfinished"] and child.name.removesuffix(_UNFINISHED) in names)
    ]
    if not runs:
        near = _near(path)
        raise OffbeatError(
            f"{path} holds no runs; did you mean {', '.join(near)}?"
            if near
            else f"{path} holds no runs: name a folder that `offbeat run` or `offbeat compare` wrote"
        )
    return [child for *_, child in sorted(runs) if not _has_just_begun(child)]


def _has_just_begun(folder: Path) -> bool:
    return folder.name.endswith(_UNFINISHED) and not (folder / "config.toml").exists()


def _near(path: Path) -> list[str]:
    """Return folders in ``path`` that hold runs, with an ellipsis after the third."""
    near: list[str] = []
    for child in sorted(path.iterdir()):
        try:
            holds = child.is_dir() and any(
                _FOLDER.fullmatch(below.name) and below.is_dir() for below in child.iterdir()
            )
        except OSError:
            continue
        if holds and len(near) == _MOST_HINTS:
            return [*near, "…"]
        if holds:
            near.append(str(child))
    return near


def _read(folder: Path) -> Run:
    run = run_directory.read(folder)
    problem = _problem(run)
    if problem:
        raise OffbeatError(f"{folder} is not a run: {problem}; name a folder that `offbeat run` wrote")
    measures_of(run)  # raises an error of its own
    return run


def _problem(run: Run) -> str:
    """Return what is wrong with the untrusted files of a run; empty if nothing."""
    algorithms: object = run.config["algorithms"]
    if not isinstance(algorithms, dict):
        return "algorithms in config.toml is not a table"
    if not _LABEL.fullmatch(run.label) or not isinstance(run.config["algorithms"][run.label], dict):
        return f"algorithms.{run.label} in config.toml is not a table of an algorithm"
    if type(run.config["seeds"][0]) is not int:
        return "seeds in config.toml must be one whole number"
    seconds = cast("object", run.real_seconds)  # of any type: it was read from a file
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return "real_seconds in timing.json must be a number"
    try:
        world_of([run])
    except (LookupError, TypeError, ValueError, AttributeError):
        return "config.toml lacks data.name, model.name, population.clients or stop, or they are broken"
    history, events = run.history, run.events
    measured = [name for name in history if name not in _COUNTS]
    if not all(_is(np.number, history.get(name)) for name in (*_COUNTS, "displacement", *measured)):
        return "the history lacks a column, or one holds other values than numbers"
    if not all(np.isfinite(history[name]).all() for name in _COUNTS):
        return "the history has gaps"
    numbers = [name for name in EVENTS.names if name not in ("outcome", "staleness")]
    if not all(_is(np.number, events.get(name)) and np.isfinite(events[name]).all() for name in numbers):
        return "the table of events lacks a column, or one holds other values than numbers"
    if "outcome" not in events or not set(map(str, events["outcome"])) <= set(OUTCOMES):
        return f"the events' outcomes must be {', '.join(OUTCOMES)}"
    counted = events["outcome"] == "counted"
    if not _is(np.number, events.get("staleness")) or not np.isfinite(events["staleness"][counted]).all():
        return "a counted visit has no staleness"
    return ""


def _is(kind: type[np.generic], column: Any) -> bool:
    return column is not None and np.issubdtype(column.dtype, kind)


def _labels(label: str, runs: Sequence[Run], others: Sequence[Run]) -> dict[Path, str]:
    """Return a label by path for runs that have the same label in their experiments.

    If there are ``others``, runs of experiments with other settings, each label names its experiment.
    """
    experiments: dict[Path, list[Run]] = {}
    for run in runs:
        experiments.setdefault(experiment_of(run), []).append(run)
    folders = list(dict.fromkeys(map(experiment_of, others or runs)))
    names = dict(zip(folders, _shortest(folders), strict=True))
    for folder, group in experiments.items():
        if reason := _clash(group):
            raise OffbeatError(f"{folder}: the runs of {label} {reason}; name only those that belong together")
    if _clash(runs):
        return {run.path: f"{names[experiment_of(run)]}/{label}" for run in runs}
    prefix = f"{'+'.join(names[folder] for folder in experiments)}/" if others else ""
    return {run.path: f"{prefix}{label}" for run in runs}


def _clash(runs: Sequence[Run]) -> str:
    """Return why runs differ in more than their seeds; empty if they do not."""
    different = differences([{k: v for k, v in run.config.items() if k not in _ignored(run)} for run in runs])
    if different:
        return f"differ in {', '.join(different)}"
    seeds = [run.seed for run in runs]
    twice = {seed for seed in seeds if seeds.count(seed) > 1}
    return f"have the seed {min(twice)} twice" if twice else ""


def _ignored(run: Run) -> tuple[str, ...]:
    # A Flower app takes the trainer's place.
    return ("name", "seeds", "trainer") if "flower" in run.config else ("name", "seeds")


def _shortest(folders: Sequence[Path]) -> list[str]:
    """Return the shortest ends of different paths that still differ."""
    parts = 1
    while len(names := {"/".join(folder.parts[-parts:]): None for folder in folders}) < len(folders):
        parts += 1
    return list(names)
