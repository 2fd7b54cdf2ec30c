"""One run: a simulation that is carried out and written into its folder."""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms.components import WrongStepError
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import PRIVACY_COLUMNS, metric_name
from offbeat.config.measured_metrics import client_columns
from offbeat.coordinator.algorithm_checks import FaultError, check_restart
from offbeat.data.dataset import Dataset
from offbeat.memory import rare_garbage_collection
from offbeat.runs.interruption import InterruptedRunError
from offbeat.runs.package_versions import versions
from offbeat.runs.writer import RunWriter
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.totals import Evaluation
from offbeat.simulation.training_queue import DivergedError
from offbeat.training.trainers.distributed.ray_cluster import DEFAULT_CLUSTER, RayCluster
from offbeat.worlds.algorithm_setup import wrap_buffer
from offbeat.worlds.simulated_privacy import protect
from offbeat.worlds.simulation import build_simulation

# Checkpoints of a large model take long; they get at most this share of the time.
_SHARE_OF_CHECKPOINTS = 0.05


@dataclass(frozen=True)
class RunTask:
    """An experiment to run with a label and a seed, and the path of its result."""

    experiment: Experiment
    label: str
    seed: int
    path: Path
    checkpoint_seconds: float  # real seconds between two checkpoints
    data: str  # the fingerprint that the data must have; empty for any
    workers: int = 1  # how many processes of this machine may train clients
    keep_diverged: bool = False  # a run that diverges ends with NaN instead of an error
    cluster: RayCluster = DEFAULT_CLUSTER  # of the trainer "ray"

    @property
    def name(self) -> str:
        """The run's name in messages."""
        return f"{self.label}, seed {self.seed}"

    def config(self, dataset: Dataset) -> dict[str, Any]:
        """Return the run's resolved configuration."""
        return self.experiment.resolved(self.label, self.seed, dataset.name)


def carry_out(
    task: RunTask, dataset: Dataset, *, on_evaluation: Callable[[Evaluation], None], check: Callable[[], None]
) -> None:
    """Run a task to its end.

    ``check`` is called often; an ``InterruptedRunError`` that it raises ends the run, which can then be resumed.
    """
    began, began_processor = time.monotonic(), time.process_time()
    if task.data and task.data != dataset.fingerprint:
        raise OffbeatError(
            f"{dataset.name} returns other data at each call, so runs cannot be compared: draw its random numbers "
            "from a generator with a seed"
        )
    with ExitStack() as stack:
        stack.enter_context(task.experiment.accelerator().numerics())
        stack.enter_context(rare_garbage_collection())
        simulation = build_simulation(
            task.experiment, task.label, task.seed, dataset, workers=task.workers, cluster=task.cluster
        )
        stack.enter_context(closing(simulation))
        writer = _open(task, dataset, simulation, on_evaluation)
        recording = _Recording(task, simulation, writer, began, began_processor)
        diverged = _simulate(task, recording, on_evaluation, check)
        # A run that is interrupted after its last step finishes; a worker without its parent does not.
        with suppress(InterruptedRunError):
            check()
        model = simulation.workload.model
        vector = torch.full_like(model.vector, math.nan) if diverged else simulation.model
        recording.writer.finish(
            model.saved(vector),
            recording.real_seconds,
            simulation.notes,
            processor_seconds=recording.processor_seconds,
            by_label={} if diverged else simulation.workload.accuracy_by_label(vector),
        )


def _open(
    task: RunTask, dataset: Dataset, simulation: Simulation, on_evaluation: Callable[[Evaluation], None]
) -> RunWriter:
    """Return the run's writer; load the last checkpoint into the simulation."""
    config = task.config(dataset)
    metrics, made_by = _metrics(task), versions(config, dataset) | {"kernel": simulation.kernel}
    writer, state = RunWriter.resume(task.path, config, metrics, made_by)
    if state is not None:
        _load(simulation, state, task)
        if state["last"] is not None:
            on_evaluation(Evaluation(*state["last"]))
    return writer


class _Recording:
    """A simulation and the writer that records it."""

    def __init__(
        self, task: RunTask, simulation: Simulation, writer: RunWriter, began: float, began_processor: float
    ) -> None:
        self.simulation = simulation
        self.writer = writer
        self._task = task
        self._began = began - writer.real_seconds
        self._began_processor = began_processor - writer.processor_seconds
        self._is_restart_checked = False

    @property
    def real_seconds(self) -> float:
        """The seconds that the run has taken, including the runs that it continues."""
        return time.monotonic() - self._began

    @property
    def processor_seconds(self) -> float:
        """The run's processor time in this process and in those that it continues."""
        return time.process_time() - self._began_processor

    def add(self, evaluation: Evaluation | None) -> None:
        """Add the rows of an evaluation, if any, and of the visits that have ended."""
        self.writer.add(evaluation, self.simulation.ended, self.simulation.evaluated_by)

    def checkpoint(self) -> None:
        """Save rows and state."""
        # Once, as soon as there is a state: an algorithm that forgets a part of it would give other numbers.
        if not self._is_restart_checked and self.simulation.coordinator.algorithm.version > 0:
            _check_restart(self.simulation, self._task)
            self._is_restart_checked = True
        self.writer.checkpoint(self.simulation.state_dict(), self.real_seconds, self.processor_seconds)


def _simulate(
    task: RunTask, recording: _Recording, on_evaluation: Callable[[Evaluation], None], check: Callable[[], None]
) -> bool:
    """Step the simulation to its end, with checkpoints; return whether it diverged."""
    # Also a checkpoint trains and reads the model, so it may be the first to see these errors.
    try:
        _step_to_end(task, recording, on_evaluation, check)
    except DivergedError as error:
        if not task.keep_diverged:
            raise DivergedError(f"{task.name}: {error}") from None
        evaluation = recording.simulation.diverged(_metrics(task))
        recording.add(evaluation)
        on_evaluation(evaluation)
        return True
    except WrongStepError as error:
        raise OffbeatError(f"{task.name}: {error}") from None
    return False


def _step_to_end(
    task: RunTask, recording: _Recording, on_evaluation: Callable[[Evaluation], None], check: Callable[[], None]
) -> None:
    simulation = recording.simulation
    due = time.monotonic() + task.checkpoint_seconds
    while not simulation.finished:
        evaluation = simulation.step()
        recording.add(evaluation)
        if evaluation is not None:
            on_evaluation(evaluation)
        if simulation.finished:
            return
        try:
            check()
        except InterruptedRunError:
            recording.checkpoint()
            raise
        now = time.monotonic()
        if now >= due:
            recording.checkpoint()
            took = time.monotonic() - now
            due = now + max(task.checkpoint_seconds, took / _SHARE_OF_CHECKPOINTS)


def _metrics(task: RunTask) -> list[str]:
    experiment = task.experiment
    names = [metric_name(metric) for metric in experiment.metrics]
    spent = () if experiment.privacy_of(task.label) is None else PRIVACY_COLUMNS
    return [*names, *spent, *client_columns(experiment.evaluate, experiment.metrics)]


def _check_restart(simulation: Simulation, task: RunTask) -> None:
    fresh = task.experiment.algorithm(task.label, task.seed)
    wrap_buffer(fresh, task.experiment.server)
    privacy = task.experiment.privacy_of(task.label)
    if privacy is not None:
        protect(
            privacy,
            fresh,
            clients=simulation.coordinator.clients,
            length=len(simulation.model),
            seed=task.seed,
        )
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
            f"the checkpoint of {task.name}, does not fit this model: has a file of your own changed? Run again "
            "with --fresh"
        )
