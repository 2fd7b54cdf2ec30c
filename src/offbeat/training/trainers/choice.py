"""The choice of a run's trainer."""

import os
from collections.abc import Callable
from functools import partial
from typing import Literal

from offbeat_core.errors import OffbeatError
from torch import nn

from offbeat.algorithms.components import LocalPlan
from offbeat.training.trainers.batched.batching_check import batching_problem
from offbeat.training.trainers.batched.dense import is_dense
from offbeat.training.trainers.batched.vmap import VmapTrainer
from offbeat.training.trainers.distributed.processes import ProcessTrainer
from offbeat.training.trainers.distributed.ray_cluster import DEFAULT_CLUSTER, RayCluster
from offbeat.training.trainers.distributed.ray_trainer import RayTrainer
from offbeat.training.trainers.distributed.switching import SwitchingTrainer
from offbeat.training.trainers.graph_loop import GraphLoopTrainer
from offbeat.training.trainers.hooks import parameter_with_hook
from offbeat.training.trainers.loop import LoopTrainer
from offbeat.training.trainers.names import TrainerName
from offbeat.training.trainers.smaller_batches import SmallerBatches
from offbeat.training.trainers.trainer import Trainer
from offbeat.training.workload import Workload

# Measured limits up to which batches are faster on a CPU. The models are copied once per visit, so the second limit
# counts for visits of few steps.
_MAX_PARAMETERS = 2**18
_MAX_PARAMETERS_PER_STEP = 2**15
# An estimate. On an H100 batches were faster for a CNN of 319,178 parameters and slower for ResNet-18. Of two encoders
# with LoRA, 23 and 15 million parameters with the frozen ones, they trained one faster and one slower.
_GPU_MAX_PARAMETERS = 2**21

# A batch's models should fit into a processor's cache, but be enough to amortise the overhead. On a GPU all batches are
# filled up to one size; if that were more than there are clients, most would be filling.
_PARAMETERS_PER_BATCH = 2**19
_DENSE_BATCHES = (8, 64)  # smallest and largest
_BATCHES = (32, 128)
_GPU_PARAMETERS_PER_BATCH = 2**26
_GPU_BATCHES = (2, 1024)


def make_trainer(
    name: TrainerName, workload: Workload, *, plan: LocalPlan, workers: int = 1, cluster: RayCluster = DEFAULT_CLUSTER
) -> Trainer:
    """Return the trainer of that name.

    ``loop`` trains one client after the other; ``processes`` several at once in other processes, with bit-equal
    results; ``ray`` several at once on the machines of ``cluster``, with bit-equal results; ``vmap`` many at once, with
    results that differ by rounding; ``unfold`` does so with convolutions as matrix products; ``auto`` is the one of
    ``choose_trainer``. There are at most ``workers`` processes on this machine; with more than one, ``loop``, ``vmap``
    and ``unfold`` use them on a CPU in runs of more than a few seconds. Models with hooks on parameters are trained in
    this process only.

    Raises:
        OffbeatError: The model cannot be trained in batches, for instance because it draws random numbers or has a
            hook on a gradient, or it cannot be sent to another process; or processes are asked for on a GPU; or Ray is
            not installed.
    """
    on_cpu = workload.accelerator.device.type == "cpu"
    if name == "processes":
        if not on_cpu:
            raise OffbeatError(f"trainer = 'processes' is for CPUs: use 'auto' on {workload.accelerator.device}")
        return ProcessTrainer(workload, workers=workers)
    if name == "ray":
        return RayTrainer(workload, workers=workers, cluster=cluster)
    chosen = choose_trainer(workload, plan)[0] if name == "auto" else name
    loop = LoopTrainer(workload)
    if chosen != "loop":
        batched = _make_vmap(workload, unfold=chosen == "unfold")
        problem = batching_problem(batched, loop, plan) if name != "auto" else None
        if problem is not None:
            raise OffbeatError(f"trainer = '{name}': this model cannot be trained in batches ({problem}): use 'loop'")
        make = partial(VmapTrainer, batch_limit=batched.batch_limit, unfold_convolutions=chosen == "unfold")
        return _with_processes(batched, workers, make) if on_cpu else SmallerBatches(batched)
    if not on_cpu:
        return SmallerBatches(GraphLoopTrainer(workload) if workload.accelerator.is_cuda else loop)
    return _with_processes(loop, workers, LoopTrainer)


def choose_trainer(workload: Workload, plan: LocalPlan) -> tuple[Literal["loop", "vmap", "unfold"], str]:
    """Return the trainer that ``auto`` takes, and the reason as a clause.

    The choice depends on the model, the plan and the kind of device, never on timing, so that equal runs have equal
    trainers. On a CPU, networks of linear layers with ReLU have a kernel for batches; for others ``torch.func`` gains
    no more than a second process does. On a GPU, batches also gain for other models, if these are small.
    """
    length = len(workload.model.vector)
    if workload.accelerator.device.type == "cpu":
        if not is_dense(workload):
            return "loop", "on a CPU only linear layers with ReLU and cross-entropy are faster in batches"
        if length > min(_MAX_PARAMETERS, _MAX_PARAMETERS_PER_STEP * plan.steps):
            return "loop", f"{length:,} parameters are too many for batches of {plan.steps} steps"
        return "vmap", "small linear layers with ReLU and cross-entropy are faster in batches"
    parameters = sum(parameter.numel() for parameter in workload.model.module.parameters())
    if parameters > _GPU_MAX_PARAMETERS:
        return "loop", f"a GPU trains {parameters:,} parameters faster one client at a time"
    unfold = any(isinstance(layer, nn.Conv2d) for layer in workload.model.module.modules())
    problem = batching_problem(_make_vmap(workload, unfold=unfold), LoopTrainer(workload), plan)
    if problem is not None:
        return "loop", f"the model cannot be trained in batches: {problem}"
    return "unfold" if unfold else "vmap", f"with {parameters:,} parameters many clients fit on a GPU at once"


def available_processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _with_processes(local: Trainer, workers: int, make: Callable[[Workload], Trainer]) -> Trainer:
    """Return a trainer that uses processes in long runs, where they are possible.

    ``make`` makes the trainer of each process.
    """
    workload = local.workload
    if workers < 2 or os.name == "nt" or parameter_with_hook(workload.model.module) is not None:
        return local
    return SwitchingTrainer(local, lambda: ProcessTrainer(workload, workers=workers, make=make))


def _make_vmap(workload: Workload, *, unfold: bool = False) -> VmapTrainer:
    length = len(workload.model.vector)
    if workload.accelerator.device.type == "cpu":
        smallest, largest = _DENSE_BATCHES if is_dense(workload) else _BATCHES
        limit = _between(smallest, _PARAMETERS_PER_BATCH // length, largest)
        return VmapTrainer(workload, batch_limit=limit, unfold_convolutions=unfold)
    smallest, largest = _GPU_BATCHES
    limit = _between(smallest, _GPU_PARAMETERS_PER_BATCH // length, min(largest, len(workload.shards)))
    return VmapTrainer(workload, batch_limit=limit, padded=True, unfold_convolutions=unfold)


def _between(smallest: int, number: int, largest: int) -> int:
    return max(smallest, min(largest, number))
