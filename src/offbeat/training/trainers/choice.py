"""The choice of a run's trainer, and a measurement of those of one process."""

import os
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np
import torch
from offbeat_core.errors import OffbeatError
from torch import nn

from offbeat.algorithms.components import LocalPlan
from offbeat.training.trainer_names import TrainerName
from offbeat.training.trainers.backend import Backend, Job
from offbeat.training.trainers.batched.batching_check import batching_problem
from offbeat.training.trainers.batched.dense import is_dense
from offbeat.training.trainers.batched.vmap import VmapBackend
from offbeat.training.trainers.distributed.process_pool import ProcessPool
from offbeat.training.trainers.distributed.ray_cluster import DEFAULT_CLUSTER, RayCluster
from offbeat.training.trainers.distributed.ray_pool import RayPool
from offbeat.training.trainers.graph_loop import make_loop
from offbeat.training.trainers.hooks import parameter_with_hook
from offbeat.training.trainers.loop import LoopBackend
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

# Measured with a batch for 4, 16 and 32 clients: 0.5, 1.4 and 2.0 times as fast for 25,450 parameters, and less for
# more of them.
_FEWEST_WITH_DROPOUT = 20

_MEASUREMENTS = 3
_MOST_MEASURED = 256


def make_trainer(
    name: TrainerName,
    workload: Workload,
    *,
    plan: LocalPlan,
    at_work: int = 1,
    workers: int = 1,
    cluster: RayCluster = DEFAULT_CLUSTER,
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
    plan = _typical(plan, workload)
    on_cpu = workload.accelerator.device.type == "cpu"
    if name == "processes":
        if not on_cpu:
            raise OffbeatError(f"trainer = 'processes' is for CPUs: use 'auto' on {workload.accelerator.device}")
        return Trainer(ProcessPool(workload, workers=workers))
    if name == "ray":
        return Trainer(RayPool(workload, workers=workers, cluster=cluster))
    chosen = choose_trainer(workload, plan, at_work)[0] if name == "auto" else name
    if chosen == "loop":
        backend = make_loop(workload)
        make: Callable[[Workload], Backend] = LoopBackend
    else:
        backend = _make_vmap(workload, unfold=chosen == "unfold")
        problem = batching_problem(backend, LoopBackend(workload), plan) if name != "auto" else None
        if problem is not None:
            raise OffbeatError(f"trainer = '{name}': this model cannot be trained in batches ({problem}): use 'loop'")
        make = partial(VmapBackend, batch_limit=backend.batch_limit, unfold_convolutions=chosen == "unfold")
    if workers < 2 or not on_cpu or os.name == "nt" or parameter_with_hook(workload.model.module) is not None:
        return Trainer(backend)
    return Trainer(backend, lambda: ProcessPool(workload, workers=workers, make=make))


def choose_trainer(workload: Workload, plan: LocalPlan, at_work: int) -> tuple[Literal["loop", "vmap", "unfold"], str]:
    """Return the trainer that ``auto`` takes, and the reason as a clause.

    The choice depends on the model, the plan, how many clients are ``at_work`` at the same time, and the kind of
    device, never on timing, so that equal runs have equal trainers. On a CPU, networks of linear layers with ReLU have
    a kernel for batches, and with dropout ``torch.func`` is faster if batches are large; for others it gains no more
    than a second process does. On a GPU, batches also gain for other models, if these are small.
    """
    plan, length = _typical(plan, workload), len(workload.model.vector)
    if workload.accelerator.device.type == "cpu":
        drops = _is_perceptron_with_dropout(workload.model.module)
        if not (is_dense(workload) or drops):
            return "loop", "on a CPU only linear layers with ReLU and cross-entropy are faster in batches"
        if length > min(_MAX_PARAMETERS, _MAX_PARAMETERS_PER_STEP * plan.steps):
            return "loop", f"{length:,} parameters are too many for batches of {plan.steps} steps"
        if not drops:
            return "vmap", "small linear layers with ReLU and cross-entropy are faster in batches"
        if at_work < _FEWEST_WITH_DROPOUT:
            return "loop", f"with dropout, batches are faster from {_FEWEST_WITH_DROPOUT} clients at work on"
        problem = batching_problem(_make_vmap(workload), LoopBackend(workload), plan)
        if problem is not None:
            return "loop", f"the model cannot be trained in batches: {problem}"
        return "vmap", "small linear layers with ReLU and dropout are faster in batches"
    parameters = sum(parameter.numel() for parameter in workload.model.module.parameters())
    if parameters > _GPU_MAX_PARAMETERS:
        return "loop", f"a GPU trains {parameters:,} parameters faster one client at a time"
    unfold = any(isinstance(layer, nn.Conv2d) for layer in workload.model.module.modules())
    problem = batching_problem(_make_vmap(workload, unfold=unfold), LoopBackend(workload), plan)
    if problem is not None:
        return "loop", f"the model cannot be trained in batches: {problem}"
    return "unfold" if unfold else "vmap", f"with {parameters:,} parameters many clients fit on a GPU at once"


def available_processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def measure_trainers(workload: Workload, plan: LocalPlan, at_work: int) -> Iterator[tuple[TrainerName, float | str]]:
    """Yield each trainer of one process with its visits per second.

    In their place stands why it cannot train the model. ``unfold`` is left out for models without convolutions.
    ``at_work`` clients work at the same time; no more can be trained together.
    """
    has_convolutions = any(isinstance(layer, nn.Conv2d) for layer in workload.model.module.modules())
    names: tuple[TrainerName, ...] = ("loop", "vmap", "unfold") if has_convolutions else ("loop", "vmap")
    plan = _typical(plan, workload)
    for name in names:
        try:
            yield name, _rate(make_trainer(name, workload, plan=plan), plan, at_work)
        except OffbeatError as error:
            yield name, str(error)


def _rate(trainer: Trainer, plan: LocalPlan, at_work: int) -> float:
    workload = trainer.workload
    start = workload.model.vector.clone()
    number = min(trainer.batch_limit, at_work, _MOST_MEASURED)
    jobs = [Job(visit % len(workload.shards), visit, 0, start, plan, "delta") for visit in range(number)]
    trainer.collect(jobs)  # libraries choose kernels, steps are recorded
    seconds: list[float] = []
    for _ in range(_MEASUREMENTS):
        began = time.perf_counter()
        trainer.collect(jobs)
        if workload.accelerator.is_cuda:
            torch.cuda.synchronize(workload.accelerator.device)
        seconds.append(time.perf_counter() - began)
    workload.model.load(start)
    return number / statistics.median(seconds)


def _typical(plan: LocalPlan, workload: Workload) -> LocalPlan:
    """Return a run's plan for the client with the median number of examples."""
    return plan.of(int(np.median([len(shard) for shard in workload.shards])))


def _is_perceptron_with_dropout(module: nn.Module) -> bool:
    layers = [layer for layer in module.modules() if not isinstance(layer, nn.Sequential)]
    return any(isinstance(layer, nn.Dropout) for layer in layers) and all(
        isinstance(layer, nn.Flatten | nn.Linear | nn.ReLU | nn.Dropout) for layer in layers
    )


def _make_vmap(workload: Workload, *, unfold: bool = False) -> VmapBackend:
    length = len(workload.model.vector)
    if workload.accelerator.device.type == "cpu":
        smallest, largest = _DENSE_BATCHES if is_dense(workload) else _BATCHES
        limit = _between(smallest, _PARAMETERS_PER_BATCH // length, largest)
        return VmapBackend(workload, batch_limit=limit, unfold_convolutions=unfold)
    smallest, largest = _GPU_BATCHES
    limit = _between(smallest, _GPU_PARAMETERS_PER_BATCH // length, min(largest, len(workload.shards)))
    return VmapBackend(workload, batch_limit=limit, padded=True, unfold_convolutions=unfold)


def _between(smallest: int, number: int, largest: int) -> int:
    return max(smallest, min(largest, number))
