"""The choice of a run's trainer."""

import os
from typing import Literal, get_args

from offbeat.algorithms.components import LocalPlan
from offbeat.errors import OffbeatError
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.batching_check import batching_problem
from offbeat.training.trainers.dense import is_dense
from offbeat.training.trainers.hooks import parameter_with_hook
from offbeat.training.trainers.loop import LoopTrainer
from offbeat.training.trainers.processes import ProcessTrainer
from offbeat.training.trainers.ray_cluster import DEFAULT_CLUSTER, RayCluster
from offbeat.training.trainers.ray_trainer import RayTrainer
from offbeat.training.trainers.switching import SwitchingTrainer
from offbeat.training.trainers.trainer import Trainer
from offbeat.training.trainers.vmap import VmapTrainer
from offbeat.training.workload import Workload

TrainerName = Literal["auto", "loop", "vmap", "processes", "ray"]
TRAINERS: tuple[TrainerName, ...] = get_args(TrainerName)

# Measured limits up to which batches are faster. The models are copied once per visit, so the second limit counts for
# visits of few steps.
_MAX_PARAMETERS = 2**18
_MAX_PARAMETERS_PER_STEP = 2**15

# A batch's models should fit into a processor's cache, but be enough to amortise the overhead.
_PARAMETERS_PER_BATCH = 2**19
_DENSE_BATCHES = (8, 64)  # smallest and largest
_BATCHES = (32, 128)


def make_trainer(
    name: TrainerName, workload: Workload, *, plan: LocalPlan, workers: int = 1, cluster: RayCluster = DEFAULT_CLUSTER
) -> Trainer:
    """Return the trainer of that name.

    ``auto`` is ``vmap`` for small networks of linear layers with ReLU, which have a kernel, and ``loop`` for all
    others: ``torch.func`` gains no more than a second process does, and does not support every model. Models with hooks
    are trained by ``loop``, and with hooks on parameters in this process only. Timing does not affect the choice, so
    equal runs have equal trainers.

    ``loop`` trains one client after the other; ``processes`` several at once in other processes, with bit-equal
    results; ``ray`` several at once on the machines of ``cluster``, with bit-equal results; ``vmap`` many at once, with
    results that differ by rounding. There are at most ``workers`` processes on this machine; with more than one,
    ``loop`` uses them in runs of more than a few seconds.

    Raises:
        OffbeatError: The model cannot be trained in batches, for instance because it draws random numbers or has a
            hook on a gradient, or it cannot be sent to another process; or Ray is not installed.
    """
    model = workload.model
    if name == "processes":
        return ProcessTrainer(workload, workers=workers)
    if name == "ray":
        return RayTrainer(workload, workers=workers, cluster=cluster)
    loop = LoopTrainer(workload)
    dense = is_dense(model.module, workload.objective.loss)
    if name == "vmap" or (name == "auto" and dense and _pays(model, plan)):
        batched = VmapTrainer(workload, batch_limit=_batch_limit(model, dense))
        problem = batching_problem(batched, loop, plan) if name == "vmap" else None
        if problem is not None:
            raise OffbeatError(f"trainer = 'vmap': this model cannot be trained in batches ({problem}): use 'loop'")
        return batched
    if workers < 2 or os.name == "nt" or parameter_with_hook(model.module) is not None:
        return loop
    return SwitchingTrainer(loop, lambda: ProcessTrainer(workload, workers=workers))


def available_processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _batch_limit(model: FlatModel, dense: bool) -> int:
    smallest, largest = _DENSE_BATCHES if dense else _BATCHES
    return max(smallest, min(largest, _PARAMETERS_PER_BATCH // len(model.vector)))


def _pays(model: FlatModel, plan: LocalPlan) -> bool:
    return len(model.vector) <= min(_MAX_PARAMETERS, _MAX_PARAMETERS_PER_STEP * plan.steps)
