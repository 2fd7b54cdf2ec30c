"""Which trainer a run has."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from offbeat.algorithms.base import LocalPlan
from offbeat.errors import OffbeatError
from offbeat.training.flat_model import FlatModel
from offbeat.training.loop import LoopTrainer
from offbeat.training.trainer import Job, Trainer
from offbeat.training.vmap import VmapTrainer
from offbeat.user_code_errors import said

TrainerName = Literal["loop", "vmap"]
TRAINERS: tuple[TrainerName, ...] = get_args(TrainerName)

# A batch's models should fit into a processor's cache, where that leaves enough of them.
_ENTRIES_A_BATCH = 2**19
_LARGEST_BATCH = 128
_SMALLEST_BATCH = 8

_TRIAL_LR = 1e-3
_TOLERANCE = 1e-2  # relative, far above rounding


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
) -> Trainer:
    """Return the trainer of that name.

    The batched trainer is first tried on two short visits, against the plain one.

    Args:
        name: ``loop`` for one client after the other, ``vmap`` for many at once.
        model: Its values are overwritten by ``loop``, as in training.
        plan: What the clients do in the trial.
        loss: Maps (outputs, labels) to the mean loss of a minibatch.
        inputs: All clients' training inputs, ``(n, …)``.
        labels: Their labels, ``(n, …)``.
        shards: For each client the indices of its examples, int64 ``(n_i,)``.
        seed: The run's seed.

    Raises:
        OffbeatError: The model cannot be trained in batches, for instance because it draws random numbers.
    """
    parts: dict[str, Any] = {"loss": loss, "inputs": inputs, "labels": labels, "shards": shards, "seed": seed}
    loop = LoopTrainer(model, **parts)
    if name == "loop":
        return loop
    start = model.vector.clone()
    limit = max(_SMALLEST_BATCH, min(_LARGEST_BATCH, _ENTRIES_A_BATCH // len(start)))
    batched = VmapTrainer(model, **parts, batch_limit=limit)
    sizes = [len(shard) for shard in shards]
    # Short and with a small step size: whether the run itself diverges is not the question.
    short = replace(plan, steps=min(plan.steps, 2), lr=_TRIAL_LR)
    clients = (int(np.argmin(sizes)), int(np.argmax(sizes)))
    jobs = [Job(client, 0, 0, start, short, "delta") for client in clients]
    problem = _recurrent(model) or _difference(batched, loop, jobs)
    model.load(start)
    if problem:
        raise OffbeatError(f"trainer = 'vmap': this model cannot be trained in batches ({problem}): take 'loop'")
    return batched


def _recurrent(model: FlatModel) -> str | None:
    # torch.func takes them one model at a time, and is slower for it.
    return next(
        (
            f"{type(layer).__name__} has no batched form"
            for layer in model.module.modules()
            if isinstance(layer, nn.RNNBase)
        ),
        None,
    )


def _difference(batched: Trainer, loop: Trainer, jobs: Sequence[Job]) -> str | None:
    expected = loop.train(jobs)
    try:
        results = batched.train(jobs)
    except Exception as error:  # whatever the model's own code and vmap make of each other
        return said(error)
    for result, other in zip(results, expected, strict=True):
        if (result.vector - other.vector).norm() > _TOLERANCE * other.vector.norm():
            return "it learns something else there than one client after the other"
    return None
