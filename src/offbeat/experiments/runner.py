"""From an experiment to run directories: one for each algorithm and seed."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from offbeat.experiments import run_directory
from offbeat.experiments.config import Experiment
from offbeat.experiments.progress import Progress
from offbeat.experiments.run_directory import Run
from offbeat.experiments.world import build_model, build_simulation
from offbeat.population.dataset import Dataset, MissingDataError
from offbeat.population.datasets import load_dataset


def run_all(
    experiment: Experiment, labels: Sequence[str], folder: Path, progress: Progress, *, replace: bool = False
) -> list[Run]:
    """Run each of ``labels`` with each seed, and return what ``folder`` then holds of them.

    Args:
        experiment: The configuration.
        labels: Which of its algorithms.
        folder: Where a folder for each run goes; one that is there with the same settings is replaced.
        progress: Is told how far it is.
        replace: Also replace runs with other settings.

    Raises:
        OffbeatError: Something that the user can mend; runs that were finished before it stay.
    """
    # With models this small a second thread costs more than it brings, and one thread always adds in one order.
    torch.set_num_threads(1)
    runs: list[Run] = []
    with run_directory.prepared(folder):
        dataset = _load_data(experiment, progress.say)
        for label in labels:
            # What does not fit together shows before the first run, not after hours of it.
            build_simulation(experiment, label, experiment.seeds[0], dataset, build_model(experiment, dataset, 0))
            for seed in experiment.seeds:
                if not replace:
                    run_directory.check_replaceable(
                        _path(folder, label, seed), experiment.resolved(label, seed, dataset.name)
                    )
        with progress:
            for label in labels:
                for seed in experiment.seeds:
                    path = _path(folder, label, seed)
                    _run(experiment, label, seed, dataset, path, progress)
                    runs.append(run_directory.read(path))
    return runs


def _path(folder: Path, label: str, seed: int) -> Path:
    return folder / f"{label}-seed{seed}"


def _load_data(experiment: Experiment, say: Callable[[str], None]) -> Dataset:
    try:
        return load_dataset(experiment.data.name)
    except MissingDataError as error:
        if experiment.data.fallback is None:
            raise
        say(f"{error}; going on with {experiment.data.fallback} instead")
        return load_dataset(experiment.data.fallback)


def _run(experiment: Experiment, label: str, seed: int, dataset: Dataset, path: Path, progress: Progress) -> None:
    began = time.monotonic()
    model = build_model(experiment, dataset, seed)
    simulation = build_simulation(experiment, label, seed, dataset, model)
    history: dict[str, list[Any]] = {name: [] for name in run_directory.HISTORY.names}
    progress.begin(label, seed)
    for evaluation in simulation.run():
        for name, value in evaluation._asdict().items():
            history[name].append(value)
        progress.advance(evaluation)
    events = {name: [getattr(visit, name) for visit in simulation.ended] for name in run_directory.EVENTS.names}
    run_directory.write(
        path,
        config=experiment.resolved(label, seed, dataset.name),
        history=history,
        events=events,
        model=model.named(simulation.model),
        real_seconds=time.monotonic() - began,
    )
    progress.end()
