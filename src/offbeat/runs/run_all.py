"""All runs of an experiment: one for each algorithm and seed."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import torch

from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import DataSection
from offbeat.config.import_path import is_import_path
from offbeat.data.dataset import Dataset, MissingDataError
from offbeat.runs import directory as run_directory
from offbeat.runs.directory import Run
from offbeat.runs.interruption import CHECKPOINT_SECONDS, Interruption
from offbeat.runs.package_versions import versions
from offbeat.runs.progress import Progress
from offbeat.runs.resume import check_settings, check_versions, has_settings
from offbeat.runs.run import RunTask, carry_out
from offbeat.runs.worker_processes import Workers
from offbeat.runs.writer import RunWriter
from offbeat.training.trainers.choice import available_processors
from offbeat.training.trainers.distributed.ray_cluster import RayCluster
from offbeat.training.worker_process import keep_freed_memory
from offbeat.worlds.availability_check import warnings_of
from offbeat.worlds.population import build_population
from offbeat.worlds.simulation import build_simulation
from offbeat.worlds.workload import build_dataset, with_default_metrics


def run_all(
    experiment: Experiment,
    labels: Sequence[str],
    folder: Path,
    progress: Progress,
    *,
    fresh: bool = False,
    jobs: int = 1,
    workers: Workers | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,  # real seconds between two checkpoints of a run
    keep_diverged: bool = False,
    ray_address: str | None = None,
) -> list[Run]:
    """Run each of ``labels`` with each seed, and return the finished runs.

    ``folder`` gets a folder for each run. Finished runs are kept, unfinished ones continued; with ``fresh`` all begin
    anew, and replace earlier runs once they are complete. Up to ``jobs`` runs are carried out at once, each in a
    process of its own; 1 stands for this process. ``workers`` are processes to use, which stay alive. With
    ``keep_diverged`` a run that diverges ends with NaN instead of an error. ``ray_address`` is that of ``RayCluster``.

    Raises:
        OffbeatError: An error that the user can correct; finished runs stay.
        InterruptedRunError: A signal came; the runs can be resumed.
    """
    # With small models a second thread costs more than it gains, and one thread always adds in the same order.
    torch.set_num_threads(1)
    keep_freed_memory()
    # Before the first run there is no state to save, so a signal ends the program at once.
    with run_directory.lock_folder(folder):
        for line in _warnings(experiment, labels):
            progress.warn(line)
        experiment = experiment.model_copy(update={"device": str(experiment.accelerator().device)})
        dataset = load_data(experiment, progress.say)
        # If a fallback replaced the data, all processes take the fallback.
        if dataset.name != experiment.data.name:
            experiment = experiment.model_copy(update={"data": fallback_of(experiment.data)})
        experiment = with_default_metrics(experiment, dataset)
        data = dataset.fingerprint if is_import_path(dataset.name) else ""
        processors = 1 if experiment.trainer == "loop" else max(1, available_processors() // jobs)
        experiment = check_runs(experiment, labels, dataset, progress.warn)
        tasks = [
            RunTask(
                experiment,
                label,
                seed,
                folder / f"{label}-seed{seed}",
                checkpoint_seconds,
                data,
                processors,
                keep_diverged,
                RayCluster(ray_address, jobs),
            )
            for label in labels
            for seed in experiment.seeds
        ]
        run_directory.describe_lock(folder, [task.path.name for task in tasks])
        if fresh:
            for task in tasks:
                config = task.config(dataset)
                RunWriter.begin(task.path, config, (), versions(config, dataset))
        waiting = [task for task in tasks if not _is_finished(task, dataset)]
        if len(waiting) < len(tasks):
            progress.say(f"{len(tasks) - len(waiting)} of {len(tasks)} runs are finished")
        with Interruption() as interruption, progress:
            progress.expect(len(waiting))
            if jobs == 1:
                _run_here(waiting, dataset, progress, interruption)
            else:
                with nullcontext(workers) if workers else Workers(jobs) as processes:
                    processes.carry_out(waiting, progress, interruption)
        return [run_directory.read(task.path) for task in tasks]


def _warnings(experiment: Experiment, labels: Sequence[str]) -> Iterator[str]:
    """Yield a line for each number of clients that is larger than there are."""
    clients = experiment.population.clients
    for label in labels:
        wanted = experiment.algorithms[label].hyper_parameters.get("concurrency", 0)
        if wanted > clients:
            yield f"algorithms.{label}.concurrency = {wanted:,}: only {clients:,} clients can work at the same time"


def _run_here(tasks: Sequence[RunTask], dataset: Dataset, progress: Progress, interruption: Interruption) -> None:
    for task in tasks:
        progress.begin(task.label, task.seed)
        carry_out(
            task,
            dataset,
            on_evaluation=lambda now, task=task: progress.advance(task.label, task.seed, now),
            check=interruption.check,
        )
        progress.end(task.label, task.seed)


def fallback_of(data: DataSection) -> DataSection:
    """Return the section of the data that take the place of missing ones."""
    assert data.fallback is not None  # or the missing data were an error
    return DataSection(name=data.fallback, validation=data.validation)


def load_data(experiment: Experiment, say: Callable[[str], None]) -> Dataset:
    """Return the experiment's data; if they are missing, the fallback, and say so."""
    try:
        return build_dataset(experiment.data)
    except MissingDataError as error:
        if experiment.data.fallback is None:
            raise
        say(f"{error}; going on with {experiment.data.fallback} instead")
        return build_dataset(fallback_of(experiment.data))


def check_runs(
    experiment: Experiment, labels: Sequence[str], dataset: Dataset, warn: Callable[[str], None]
) -> Experiment:
    """Return the experiment with the same trainer for all runs.

    Builds a simulation of each algorithm, so that an error shows before the first run; ``warn`` gets a line for
    whatever is implausible in its clients.
    """
    seed = experiment.seeds[0]
    population = build_population(experiment.population, dataset, seed)
    trainers: set[Any] = set()
    with experiment.accelerator().numerics():
        for label in labels:
            with closing(build_simulation(experiment, label, seed, dataset, population=population)) as simulation:
                trainers.add(simulation.trainer)
    for line in warnings_of(experiment, population):
        warn(line)
    # An app takes the trainer's place, and its name is not one that an experiment may have.
    if experiment.trainer != "auto" or experiment.flower is not None:
        return experiment
    # Plans may differ in whether they suit batches.
    return experiment.model_copy(update={"trainer": "loop" if "loop" in trainers else trainers.pop()})


def _is_finished(task: RunTask, dataset: Dataset) -> bool:
    """Return whether the task's run is finished; refuse other settings or versions."""
    config, unfinished = task.config(dataset), run_directory.unfinished_path(task.path)
    # A fresh run goes on although there is a finished one, which it will replace.
    if has_settings(unfinished, config):
        return False
    for folder in (task.path, unfinished):
        check_settings(folder, config)
    if not has_settings(task.path, config):
        return False
    check_versions(task.path, versions(config, dataset))
    run_directory.remove(unfinished)
    return True
