"""From an experiment to run directories: one for each algorithm and seed."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch

from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import DataSection
from offbeat.config.import_path import is_import_path
from offbeat.data.dataset import Dataset, MissingDataError
from offbeat.runs import directory as run_directory
from offbeat.runs.directory import Run
from offbeat.runs.interruption import Interruption
from offbeat.runs.package_versions import check_versions, versions
from offbeat.runs.progress import Progress
from offbeat.runs.run import RunTask, carry_out
from offbeat.runs.worker_processes import Workers
from offbeat.training.trainers.choice import available_processors
from offbeat.worlds.simulation import build_dataset, build_model, build_objective, build_simulation

CHECKPOINT_SECONDS = 30.0


def run_all(
    experiment: Experiment,
    labels: Sequence[str],
    folder: Path,
    progress: Progress,
    *,
    replace: bool = False,
    resume: bool = False,
    jobs: int = 1,
    workers: Workers | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    keep_diverged: bool = False,
) -> list[Run]:
    """Run each of ``labels`` with each seed, and return what ``folder`` then holds of them.

    Args:
        experiment: The configuration.
        labels: Which of its algorithms.
        folder: Where a folder for each run goes; one that is there with the same settings is replaced.
        progress: Is told how far it is.
        replace: Also replace runs with other settings.
        resume: Leave finished runs as they are, and go on with unfinished ones.
        jobs: How many processes run at once; 1 is this one.
        workers: These processes, if they are to go on living after the call.
        checkpoint_seconds: Real seconds between two checkpoints of a run.
        keep_diverged: A run that goes to NaN ends there, with NaN, in place of an error.

    Raises:
        OffbeatError: Something that the user can mend; runs that were finished before it stay.
        InterruptedRunError: A signal came; what was going on can be resumed.
    """
    # With models this small a second thread costs more than it brings, and one thread always adds in one order.
    torch.set_num_threads(1)
    # Until the first run begins there is nothing to keep, and a signal may end the program as ever.
    with run_directory.prepared(folder):
        dataset = _load_data(experiment, progress.say)
        # What was taken in place of data that could not be had is what all processes take.
        if dataset.name != experiment.data.name:
            experiment = experiment.model_copy(update={"data": DataSection(name=dataset.name)})
        data = dataset.fingerprint if is_import_path(dataset.name) else ""
        processors = 1 if experiment.trainer == "loop" else max(1, available_processors() // jobs)
        experiment = _checked(experiment, labels, dataset)
        tasks = [
            RunTask(
                experiment,
                label,
                seed,
                folder / f"{label}-seed{seed}",
                resume,
                checkpoint_seconds,
                data,
                processors,
                keep_diverged,
            )
            for label in labels
            for seed in experiment.seeds
        ]
        waiting = [task for task in tasks if not _is_there(task, dataset, replace)]
        if len(waiting) < len(tasks):
            progress.say(f"{len(tasks) - len(waiting)} of {len(tasks)} runs are finished")
        with Interruption() as interruption, progress:
            progress.expect(len(waiting))
            if jobs == 1:
                for task in waiting:
                    progress.begin(task.label, task.seed)
                    carry_out(
                        task,
                        dataset,
                        tell=lambda now, t=task: progress.advance(t.label, t.seed, now),
                        check=interruption.check,
                    )
                    progress.end(task.label, task.seed)
            else:
                with nullcontext(workers) if workers else Workers(jobs) as its:
                    its.carry_out(
                        waiting,
                        begin=lambda task: progress.begin(task.label, task.seed),
                        tell=lambda task, now: progress.advance(task.label, task.seed, now),
                        end=lambda task: progress.end(task.label, task.seed),
                        interruption=interruption,
                    )
        return [run_directory.read(task.path) for task in tasks]


def _load_data(experiment: Experiment, say: Callable[[str], None]) -> Dataset:
    try:
        return build_dataset(experiment.data)
    except MissingDataError as error:
        if experiment.data.fallback is None:
            raise
        say(f"{error}; going on with {experiment.data.fallback} instead")
        return build_dataset(DataSection(name=experiment.data.fallback))


def _checked(experiment: Experiment, labels: Sequence[str], dataset: Dataset) -> Experiment:
    """Return the experiment with one trainer for all runs, so that they can be compared.

    What does not fit together shows here, before the first run, not after hours of it.
    """
    objective = build_objective(experiment)
    seed = experiment.seeds[0]
    for label in labels:
        simulation = build_simulation(
            experiment, label, seed, dataset, build_model(experiment.model, dataset, seed), objective
        )
        if experiment.trainer == "auto" and simulation.trainer == "loop":
            experiment = experiment.model_copy(update={"trainer": "loop"})
    return experiment.model_copy(update={"trainer": "vmap"}) if experiment.trainer == "auto" else experiment


def _is_there(task: RunTask, dataset: Dataset, replace: bool) -> bool:
    """Return whether there is nothing left to do for the task.

    Raises:
        OffbeatError: There is a run with other settings in its place.
    """
    config, unfinished = task.config(dataset), run_directory.unfinished(task.path)
    if task.resume:
        if run_directory.is_of(task.path, config):
            check_versions(task.path, versions(config, dataset))
            # A kill just before a run's last line leaves it.
            run_directory.remove(unfinished)
            return True
        # It is to replace a finished one with other settings, as was said when it was begun.
        if run_directory.is_of(unfinished, config):
            return False
    elif replace:
        return False
    for folder in (task.path, unfinished):
        run_directory.refuse_other(folder, config)
    return False
