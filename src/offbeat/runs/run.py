"""One run: a simulation, carried out and written down."""

import math
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from offbeat.algorithms.components import WrongStepError
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import metric_name
from offbeat.coordinator.algorithm_checks import FaultError, check_restart
from offbeat.data.dataset import Dataset
from offbeat.errors import OffbeatError
from offbeat.runs.interruption import InterruptedRunError
from offbeat.runs.package_versions import versions
from offbeat.runs.writer import RunWriter
from offbeat.simulation.records import Evaluation
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.work import DivergedError
from offbeat.worlds.buffer_wrappers import wrap_buffer
from offbeat.worlds.simulation import build_model, build_objective, build_simulation

# Checkpoints of a large model take long; they get at most this share of the time.
_SHARE_OF_CHECKPOINTS = 0.05


@dataclass(frozen=True)
class RunTask:
    """What is to be run, and where the result goes."""

    experiment: Experiment
    label: str
    seed: int
    path: Path
    resume: bool  # go on with what an interrupted run left there
    checkpoint_seconds: float  # real seconds between two checkpoints
    data: str  # the fingerprint that the data must have; empty for any
    workers: int = 1  # how many processes it may train in
    keep_diverged: bool = False  # a run that goes to NaN is an end like others, not an error

    def config(self, dataset: Dataset) -> dict[str, Any]:
        """Return the run's resolved configuration."""
        return self.experiment.resolved(self.label, self.seed, dataset.name)


def carry_out(
    task: RunTask, dataset: Dataset, *, tell: Callable[[Evaluation], None], check: Callable[[], None]
) -> None:
    """Run a task to its end.

    Args:
        task: What to run.
        dataset: What is learnt.
        tell: Is told each evaluation.
        check: Called often; an ``InterruptedRunError`` that it raises ends the run, which can then be resumed.

    Raises:
        DivergedError: Training went to NaN or infinity, and ``keep_diverged`` is not set.
    """
    began = time.monotonic()
    if task.data and task.data != dataset.fingerprint:
        raise OffbeatError(
            f"{dataset.name} returns other data each time it is called, so runs cannot be compared: let it draw its "
            "random numbers from a generator with a seed"
        )
    model = build_model(task.experiment.model, dataset, task.seed)
    objective = build_objective(task.experiment)
    with closing(
        build_simulation(task.experiment, task.label, task.seed, dataset, model, objective, workers=task.workers)
    ) as simulation:
        metrics = [metric_name(metric) for metric in task.experiment.metrics]
        config = task.config(dataset)
        made_by = versions(config, dataset)
        if task.resume:
            writer, state = RunWriter.resume(task.path, config, metrics, made_by)
            if state is not None:
                _load(simulation, state, task)
                if state["last"] is not None:
                    tell(Evaluation(*state["last"]))
        else:
            writer = RunWriter.begin(task.path, config, metrics, made_by)

        def real_seconds() -> float:
            return writer.real_seconds + time.monotonic() - began

        is_checked = False

        def save() -> None:
            nonlocal is_checked
            # Once, as soon as there is a state to forget: a resumed run would have other numbers.
            if not is_checked and simulation.coordinator.algorithm.version > 0:
                _check_restart(simulation, task)
                is_checked = True
            writer.checkpoint(simulation.state_dict(), real_seconds())

        due = time.monotonic() + task.checkpoint_seconds
        diverged = False
        while not simulation.finished:
            try:
                evaluation = simulation.step()
            except DivergedError as error:
                if not task.keep_diverged:
                    raise DivergedError(f"{task.label}, seed {task.seed}: {error}") from None
                evaluation, diverged = simulation.diverged(metrics), True
            except WrongStepError as error:
                raise OffbeatError(f"{task.label}, seed {task.seed}: {error}") from None
            writer.add(evaluation, simulation.ended)
            if evaluation is not None:
                tell(evaluation)
            if simulation.finished or diverged:
                break
            try:
                check()
            except InterruptedRunError:
                save()
                raise
            now = time.monotonic()
            if now >= due:
                save()
                took = time.monotonic() - now
                due = now + max(task.checkpoint_seconds, took / _SHARE_OF_CHECKPOINTS)
        # Who is asked to stop now finishes, but a worker that nobody waits for must not.
        with suppress(InterruptedRunError):
            check()
        vector = torch.full_like(model.vector, math.nan) if diverged else simulation.model
        writer.finish(model.named(vector), real_seconds())


def _check_restart(simulation: Simulation, task: RunTask) -> None:
    fresh = task.experiment.algorithm(task.label)
    wrap_buffer(fresh, task.experiment.server)
    try:
        check_restart(simulation.coordinator.algorithm, fresh)
    except FaultError as error:
        raise OffbeatError(f"algorithms.{task.label}: {error}") from None


def _load(simulation: Simulation, state: dict[str, Any], task: RunTask) -> None:
    shape = simulation.model.shape
    try:
        simulation.load_state_dict(state)
        fits = simulation.model.shape == shape
    except (AssertionError, AttributeError, LookupError, TypeError, ValueError, RuntimeError):
        fits = False
    if not fits:
        raise OffbeatError(
            f"the checkpoint of {task.label}, seed {task.seed}, is not of this model: was a file of your own changed? "
            "Run again without --resume"
        )
