"""Can clients with this model be trained in batches? Found out before the first run, by two short visits."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from offbeat.algorithms.components import LocalPlan
from offbeat.training.flat_model import FlatModel
from offbeat.training.trainers.hooks import gradient_hook
from offbeat.training.trainers.trainer import Job, Trainer
from offbeat.user_code_errors import said

_LR = 1e-3
_LARGE_LR = 0.1
_MOST_STEPS = 20
_TOLERANCE = 1e-2  # relative, far above rounding


def batching_problem(
    model: FlatModel,
    batched: Trainer,
    loop: Trainer,
    plan: LocalPlan,
    shards: Sequence[NDArray[np.int64]],
) -> str | None:
    """Return why a model cannot be trained in batches; None if it can.

    Args:
        model: Its values are left as they were.
        batched: The batched trainer.
        loop: The plain trainer, of the same model.
        plan: What the clients are to do.
        shards: For each client the indices of its examples, int64 ``(n_i,)``; the one with the fewest and the one with
            the most are tried.
    """
    recurrent = next((layer for layer in model.module.modules() if isinstance(layer, nn.RNNBase)), None)
    if recurrent is not None:
        # torch.func takes them one model at a time, and is slower for it.
        return f"{type(recurrent).__name__} has no batched form"
    hook = gradient_hook(model.module)
    if hook is not None:
        # torch.func leaves these out, and what they change may be too little to be seen below.
        return hook
    sizes = [len(shard) for shard in shards]
    start = model.vector.clone()
    # Short and with a small step size: whether the run itself diverges is not the question.
    short = replace(plan, steps=min(plan.steps, 2), lr=_stable(_LR, plan))
    jobs = [Job(client, 0, 0, start, short, "delta") for client in (int(np.argmin(sizes)), int(np.argmax(sizes)))]
    # Of one client, so that they are trained together; with steps that are large enough for the last bits to show.
    long = replace(plan, steps=min(plan.steps, _MOST_STEPS), lr=_stable(_LARGE_LR, plan))
    several = [jobs[1]._replace(visit=visit, plan=long) for visit in range(5)]
    expected = loop.train(jobs)
    try:
        results = batched.train(jobs)
        together = batched.train(several)
        apart = [*batched.train(several[:2]), *batched.train(several[2:])]
    except Exception as error:  # whatever the model's own code and vmap make of each other
        return said(error)
    finally:
        model.load(start)
    for result, other in zip(results, expected, strict=True):
        if (result.vector - other.vector).norm() > _TOLERANCE * other.vector.norm():
            return "it learns something else there than one client after the other"
    if not all(_same(one.vector, other.vector) for one, other in zip(together, apart, strict=True)):
        # Vectorised instructions may round otherwise than what they leave over, for instance in ELU and SiLU.
        return "the last bits of what a client learns depend on who is trained with it"
    return None


def _stable(lr: float, plan: LocalPlan) -> float:
    """Return a step size that the proximal term allows: lr · μ must be less than 2."""
    return min(lr, 1 / plan.mu) if plan.mu else lr


def _same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True)
