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

from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import PRIVACY_COLUMNS, metric_name
from offbeat.config.measured_metrics import client_columns
from offbeat.coordinator.algorithm_checks import FaultError, check_restart, errors_named
from offbeat.data.dataset import Dataset
from offbeat.process_memory import rare_garbage_collection
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
        recording = _Recording(task, dataset, simulation, on_evaluation, began, began_processor)
        diverged = recording.run(check)
        # A run that is interrupted after its last step finishes; a worker without its parent does not.
        with suppress(InterruptedRunError):
            check()
        recording.finish(diverged=diverged)


class _Recording:
    """A simulation, and the writer that records it from the last checkpoint on."""

    def __init__(
        self,
        task: RunTask,
        dataset: Dataset,
        simulation: Simulation,
        on_evaluation: Callable[[Evaluation], None],
        began: float,
        began_processor: float,
    ) -> None:
        self._task = task
        self._simulation = simulation
        self._on_evaluation = on_evaluation
        self._is_restart_checked = False
        config = task.config(dataset)
        made_by = versions(config, dataset) | {"kernel": simulation.kernel}
        self._writer, state = RunWriter.resume(task.path, config, _metrics(task), made_by)
        self._began = began - self._writer.real_seconds
        self._began_processor = began_processor - self._writer.processor_seconds
        if state is not None:
            _load(simulation, state, task)
            if state["last"] is not None:
                on_evaluation(Evaluation(*state["last"]))

    def run(self, check: Callable[[], None]) -> bool:
        """Step the simulation to its end, with checkpoints; return whether it diverged."""
        # Also a checkpoint trains and reads the model, so it may be the first to see these errors.
        try:
            with errors_named(self._task.name):
                self._step_to_end(check)
        except DivergedError as error:
            if not self._task.keep_diverged:
                raise DivergedError(f"{self._task.name}: {error}") from None
            self._add(self._simulation.diverged(_metrics(self._task)))
            return True
        return False

    def _step_to_end(self, check: Callable[[], None]) -> None:
        due = time.monotonic() + self._task.checkpoint_seconds
        while not self._simulation.finished:
            self._add(self._simulation.step())
            if self._simulation.finished:
                return
            try:
                check()
            except InterruptedRunError:
                self._checkpoint()
                raise
            now = time.monotonic()
            if now >= due:
                self._checkpoint()
                took = time.monotonic() - now
                due = now + max(self._task.checkpoint_seconds, took / _SHARE_OF_CHECKPOINTS)

    def _add(self, evaluation: Evaluation | None) -> None:
        """Add the rows of an evaluation, if any, and of the visits that have ended."""
        self._writer.add(evaluation, self._simulation.ended, self._simulation.evaluated_by)
        if evaluation is not None:
            self._on_evaluation(evaluation)

    def _checkpoint(self) -> None:
        # Once, as soon as there is a state: an algorithm that forgets a part of it would give other numbers.
        if not self._is_restart_checked and self._simulation.coordinator.algorithm.version > 0:
            _check_restart(self._simulation, self._task)
            self._is_restart_checked = True
        self._writer.checkpoint(self._simulation.state_dict(), *self._seconds())

    def _seconds(self) -> tuple[float, float]:
        """Return real and processor time, of the runs that it continues, too."""
        return time.monotonic() - self._began, time.process_time() - self._began_processor

    def finish(self, *, diverged: bool) -> None:
        """Write the finished run."""
        workload, model = self._simulation.workload, self._simulation.workload.model
        vector = torch.full_like(model.vector, math.nan) if diverged else self._simulation.model
        real_seconds, processor_seconds = self._seconds()
        by_label = {} if diverged else workload.accuracy_by_label(vector)
        self._writer.finish(
            model.saved(vector),
            real_seconds,
            self._simulation.notes,
            processor_seconds=processor_seconds,
            by_label=by_label,
            client_time=self._simulation.client_time,
            bounds=workload.objective.bounds,
        )


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
