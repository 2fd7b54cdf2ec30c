"""A run's schedule: its simulation without training."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from offbeat import algorithms
from offbeat.algorithms import LocalPlan
from offbeat.early_stop import EarlyStop
from offbeat.simulation.evaluations import Evaluate, EvaluationsByClients
from offbeat.training.accelerator import CPU
from offbeat.training.flat_model import FlatModel
from offbeat.training.objectives import Objective
from offbeat.training.trainers.backend import Backend, Job, Result
from offbeat.training.trainers.trainer import Trainer
from offbeat.training.workload import Examples, Workload
from offbeat.worlds.algorithm_setup import dry_run
from offbeat.worlds.simulation import World

_LENGTH = 100  # of the vectors in place of models
_ENTRY = 1e-6  # of each update: an algorithm may divide by its norm


class ScheduleWorld(World):
    """A world whose clients return the same small update at once, in no real time.

    The coordinator, the algorithm, the clients' devices and the bytes of transfers are those of the run, and so are its
    events, as long as none depends on values: on ``stop.target`` and ``patience``, which are ignored, on
    ``server.max_update_norm``, or on a user's algorithm or client selection that looks at losses or updates.
    """

    def _placed(self, workload: Workload) -> Workload:
        if not type(self.algorithm).__module__.startswith(f"{algorithms.__name__}."):
            return replace(workload, accelerator=CPU)  # a user's algorithm may know the model's length
        zeros = torch.zeros(1, 1)
        model = FlatModel(nn.Linear(_LENGTH - 1, 1))
        objective = Objective(nn.functional.mse_loss)
        return Workload(model, objective, Examples(zeros, zeros), workload.shards, self.seed, may_weigh=False)

    def _length(self, workload: Workload) -> int:
        return len(self.workload.model.vector)

    def _evaluate(self, workload: Workload) -> Evaluate:
        return lambda model: (0.0, {})

    def _early_stop(self) -> EarlyStop | None:
        return None

    def _check(self, workload: Workload, examples: Tensor, plan: LocalPlan) -> None:
        dry_run(self.algorithm, self.workload.model.vector, examples, plan)

    def _client_evaluations(self, workload: Workload) -> EvaluationsByClients | None:
        return None

    def _trainer(self, workload: Workload, plan: LocalPlan) -> Trainer:
        return Trainer(_ConstantBackend(workload))


class _ConstantBackend(Backend):
    """Returns an update of equal entries, whatever the job."""

    name = "constant"
    batch_limit = 128

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def train(self, jobs: Sequence[Job]) -> list[Result]:
        """Return one for each."""
        return [Result(self._vector(job), 0.0, squares=0.0) for job in jobs]  # finite, so that nobody looks again

    def _vector(self, job: Job) -> Tensor:
        return job.start.clone() if job.payload == "params" else torch.full_like(job.start, _ENTRY)
