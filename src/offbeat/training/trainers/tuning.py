"""A measurement of the trainers of one process on a workload."""

import statistics
import time
from collections.abc import Iterator

import torch
from offbeat_core.errors import OffbeatError
from torch import nn

from offbeat.algorithms.components import LocalPlan
from offbeat.training.trainers.choice import make_trainer
from offbeat.training.trainers.names import TrainerName
from offbeat.training.trainers.trainer import Job, Trainer
from offbeat.training.workload import Workload

_REPETITIONS = 3
_MOST_JOBS = 256


def measure_trainers(workload: Workload, plan: LocalPlan, at_work: int) -> Iterator[tuple[TrainerName, float | str]]:
    """Yield each trainer with its visits per second, or why it cannot train the model.

    ``unfold`` is left out for models without convolutions. ``at_work`` clients work at the same time; no more can be
    trained together.
    """
    has_convolutions = any(isinstance(layer, nn.Conv2d) for layer in workload.model.module.modules())
    names: tuple[TrainerName, ...] = ("loop", "vmap", "unfold") if has_convolutions else ("loop", "vmap")
    for name in names:
        try:
            yield name, _rate(make_trainer(name, workload, plan=plan), plan, at_work)
        except OffbeatError as error:
            yield name, str(error)


def _rate(trainer: Trainer, plan: LocalPlan, at_work: int) -> float:
    workload = trainer.workload
    start = workload.model.vector.clone()
    number = min(trainer.batch_limit, at_work, _MOST_JOBS)
    jobs = [Job(visit % len(workload.shards), visit, 0, start, plan, "delta") for visit in range(number)]
    trainer.collect(jobs)  # libraries choose kernels, steps are recorded
    seconds: list[float] = []
    for _ in range(_REPETITIONS):
        began = time.perf_counter()
        trainer.collect(jobs)
        if workload.accelerator.is_cuda:
            torch.cuda.synchronize(workload.accelerator.device)
        seconds.append(time.perf_counter() - began)
    workload.model.load(start)
    return number / statistics.median(seconds)
