"""Completed runs whose settings are those of a figure's file."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from offbeat.config.experiment_file import Experiment
from offbeat.runs import directory as run_directory
from offbeat.runs.directory import Run
from offbeat.runs.resume import has_settings


def figure_folder(name: str, scale: str, results: Path) -> Path:
    """Return the folder of a figure's runs at a scale, below that of all results."""
    return results / f"{name}-{scale}"


def completed_runs(experiment: Experiment, folder: Path) -> list[Run] | None:
    """Return the runs of the seeds for which all are there with their settings.

    They are ordered by label, then seed; None if not a single seed is complete.
    """
    paths = list(_run_paths(experiment, folder))
    missing = {seed for label, seed, path in paths if not _has_settings(experiment, label, seed, path)}
    runs = [run_directory.read(path) for _, seed, path in paths if seed not in missing]
    return runs or None


def remove_outdated_runs(experiment: Experiment, folder: Path) -> None:
    """Remove finished and unfinished runs whose settings differ from the experiment's."""
    for label, seed, completed in _run_paths(experiment, folder):
        for path in (completed, run_directory.unfinished_path(completed)):
            if path.exists() and not _has_settings(experiment, label, seed, path):
                run_directory.remove(path)


def _run_paths(experiment: Experiment, folder: Path) -> Iterator[tuple[str, int, Path]]:
    for label in experiment.algorithms:
        for seed in experiment.seeds:
            yield label, seed, folder / f"{label}-seed{seed}"


def _has_settings(experiment: Experiment, label: str, seed: int, path: Path) -> bool:
    try:
        config = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
        dataset, trainer = config["data"]["name"], config["trainer"]
    except (OSError, ValueError, LookupError, TypeError):  # missing or broken
        return False
    # The run decided whether to use the fallback data, and which trainer and device "auto" is.
    if not isinstance(dataset, str) or dataset not in (experiment.data.name, experiment.data.fallback):
        return False
    resolved = experiment.resolved(label, seed, dataset)
    if experiment.trainer == "auto":
        resolved["trainer"] = trainer
    if experiment.device == "auto":
        resolved["device"] = config.get("device", "cpu")
    return has_settings(path, resolved)
