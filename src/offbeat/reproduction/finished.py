"""Runs that are there, and whether they are what a file asks for."""

import tomllib
from pathlib import Path

from offbeat.config.experiment_file import Experiment
from offbeat.runs import directory as run_directory
from offbeat.runs.directory import Run
from offbeat.runs.resume import has_settings


def place(name: str, scale: str, results: Path) -> Path:
    """Return the folder of what is run of a figure at a scale, below that of all results."""
    return results / f"{name}-{scale}"


def finished_runs(experiment: Experiment, folder: Path) -> list[Run] | None:
    """Return an experiment's runs; None unless all of them are in ``folder``, with the settings that it has."""
    runs: list[Run] = []
    for label in experiment.algorithms:
        for seed in experiment.seeds:
            path = folder / f"{label}-seed{seed}"
            if not _is_asked_for(experiment, label, seed, path):
                return None
            runs.append(run_directory.read(path))
    return runs


def forget_others(experiment: Experiment, folder: Path) -> None:
    """Remove runs in ``folder``, finished or not, whose settings are not the experiment's any more."""
    for label in experiment.algorithms:
        for seed in experiment.seeds:
            path = folder / f"{label}-seed{seed}"
            for there in (path, run_directory.unfinished_path(path)):
                if there.exists() and not _is_asked_for(experiment, label, seed, there):
                    run_directory.remove(there)


def _is_asked_for(experiment: Experiment, label: str, seed: int, path: Path) -> bool:
    try:
        there = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
        dataset, trainer = there["data"]["name"], there["trainer"]
    except (OSError, ValueError, LookupError, TypeError):  # it is not there, or broken
        return False
    # Which of the two it was, only the run knows.
    if not isinstance(dataset, str) or dataset not in (experiment.data.name, experiment.data.fallback):
        return False
    resolved = experiment.resolved(label, seed, dataset)
    if experiment.trainer == "auto":  # it was chosen when the run began
        resolved["trainer"] = trainer
    return has_settings(path, resolved)
