"""Which trainer a run has."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from offbeat.algorithms.components import LocalPlan
from offbeat.errors import OffbeatError
from offbeat.training.augmentation import AugmentationName
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.batching_check import batching_problem
from offbeat.training.trainers.dense import is_dense
from offbeat.training.trainers.hooks import parameter_with_hook
from offbeat.training.trainers.late_processes import LateProcesses
from offbeat.training.trainers.loop import LoopTrainer
from offbeat.training.trainers.processes import ProcessTrainer
from offbeat.training.trainers.trainer import Trainer
from offbeat.training.trainers.vmap import VmapTrainer

TrainerName = Literal["auto", "loop", "vmap", "processes"]
TRAINERS: tuple[TrainerName, ...] = get_args(TrainerName)

# Up to so many parameters a batch of models pays, as measured; and since the models are copied once a visit, with few
# steps only up to so many a step.
_MOST_PARAMETERS = 2**18
_MOST_A_STEP = 2**15

# A batch's models should fit into a processor's cache, where that leaves enough of them to spread the overhead over.
_ENTRIES_A_BATCH = 2**19
_BATCHES_IN_KERNEL = (8, 64)
_BATCHES = (32, 128)


def make_trainer(
    name: TrainerName,
    model: FlatModel,
    *,
    plan: LocalPlan,
    loss: Callable[[Tensor, Tensor], Tensor],
    inputs: Tensor,
    labels: Tensor,
    shards: Sequence[NDArray[np.int64]],
    seed: int,
    augmentation: AugmentationName | None = None,
    workers: int = 1,
) -> Trainer:
    """Return the trainer of that name.

    ``auto`` is ``vmap`` for small networks of linear layers with ReLU between, which have a kernel of their own, and
    ``loop`` for all others: ``torch.func`` gains no more than a second process does, and not every model can take it.
    A model with hooks is trained by ``loop``, and with hooks on its parameters in this process only.
    No clock has a say, so the same run is always done the same way.

    Args:
        name: ``loop`` for one client after the other, ``processes`` for several, each in a process of its own, which
            gives the same to the bit; ``vmap`` for many at once, which differs by rounding.
        model: Its values are overwritten by ``loop``, as in training.
        plan: What the clients do.
        loss: Maps (outputs, labels) to the mean loss of a minibatch.
        inputs: All clients' training inputs, ``(n, …)``.
        labels: Their labels, ``(n, …)``.
        shards: For each client the indices of its examples, int64 ``(n_i,)``.
        seed: The run's seed.
        augmentation: How inputs are changed at random; None leaves them as they are.
        workers: How many processes there may be; where there may be more than one, ``loop`` uses them if it takes
            longer than it takes to start them.

    Raises:
        OffbeatError: The model cannot be trained in batches, for instance because it draws random numbers or has a
            hook on a gradient, or cannot be sent to another process.
    """
    parts: dict[str, Any] = {
        "loss": loss,
        "inputs": inputs,
        "labels": labels,
        "shards": shards,
        "seed": seed,
        "augmentation": augmentation,
    }
    if name == "processes":
        return ProcessTrainer(model, **parts, workers=workers)
    loop = LoopTrainer(model, **parts)
    in_kernel = is_dense(model.module, loss)
    if name == "vmap" or (name == "auto" and in_kernel and _pays(model, plan)):
        batched = VmapTrainer(model, **parts, batch_limit=_batch_limit(model, in_kernel))
        problem = batching_problem(model, batched, loop, plan, shards) if name == "vmap" else None
        if problem is not None:
            raise OffbeatError(f"trainer = 'vmap': this model cannot be trained in batches ({problem}): take 'loop'")
        return batched
    if workers < 2 or os.name == "nt" or parameter_with_hook(model.module) is not None:
        return loop
    return LateProcesses(loop, lambda: ProcessTrainer(model, **parts, workers=workers))


def available_processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _batch_limit(model: FlatModel, in_kernel: bool) -> int:
    smallest, largest = _BATCHES_IN_KERNEL if in_kernel else _BATCHES
    return max(smallest, min(largest, _ENTRIES_A_BATCH // len(model.vector)))


def _pays(model: FlatModel, plan: LocalPlan) -> bool:
    return len(model.vector) <= min(_MOST_PARAMETERS, _MOST_A_STEP * plan.steps)
