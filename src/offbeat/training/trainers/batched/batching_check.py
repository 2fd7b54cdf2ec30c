"""A check that a model can be trained in batches, before the first run."""

from dataclasses import replace

import numpy as np
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.user_code_errors import error_line
from torch import Tensor, nn

from offbeat.algorithms.components import LocalPlan
from offbeat.training.trainers.backend import Backend, Job
from offbeat.training.trainers.hooks import gradient_hook

_LR = 1e-3
_LARGE_LR = 0.1
_MAX_STEPS = 20
_DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
_TOLERANCE = {"float32": 1e-2, "tf32": 0.1, "bf16": 0.1}  # relative, far above rounding


def batching_problem(batched: Backend, loop: Backend, plan: LocalPlan) -> str | None:
    """Return the reason why a model cannot be trained in batches; None if it can.

    The batched backend is compared with the loop, the reference, on the smallest and the largest client. The model's
    values do not change.
    """
    model = loop.workload.model
    recurrent = next((layer for layer in model.module.modules() if isinstance(layer, nn.RNNBase)), None)
    if recurrent is not None:
        # torch.func computes these one model at a time, which is slower.
        return f"{type(recurrent).__name__} has no batched form"
    hook = gradient_hook(model.module)
    if hook is not None:
        # torch.func ignores hooks, and their effect may be too small for the comparison below.
        return hook
    dropout = next((layer for layer in model.module.modules() if isinstance(layer, _DROPOUT) and layer.p), None)
    if dropout is not None and loop.workload.accelerator.device.type != "cpu":
        return f"in batches {type(dropout).__name__} draws the CPU's random numbers, alone those of the GPU"
    sizes = [len(shard) for shard in loop.workload.shards]
    start = model.vector.clone()
    # Short and with a small step size, so that it does not diverge even if the run does.
    # Plain steps, since AdamW would make much of rounding in gradients that are nearly 0.
    short = replace(plan, steps=min(plan.steps, 2), lr=_stable(_LR, plan), optimizer="sgd")
    jobs = [Job(client, 0, 0, start, short, "delta") for client in (int(np.argmin(sizes)), int(np.argmax(sizes)))]
    # Visits of one client, which are trained together, with steps large enough to change the last bits.
    long = replace(plan, steps=min(plan.steps, _MAX_STEPS), lr=_stable(_LARGE_LR, plan))
    visits = [jobs[1]._replace(visit=visit, plan=long) for visit in range(5)]
    expected = loop.train(jobs)
    try:
        results = batched.train(jobs)
        together = batched.train(visits)
        apart = [*batched.train(visits[:2]), *batched.train(visits[2:])]
    except OffbeatError as error:
        return error_line(error.__cause__ or error)
    finally:
        model.load(start)
    tolerance = _TOLERANCE[loop.workload.accelerator.precision]
    for result, other in zip(results, expected, strict=True):
        if (result.vector - other.vector).norm() > tolerance * other.vector.norm():
            return "its results differ from those of one client after the other"
    if not all(_equal(one.vector, other.vector) for one, other in zip(together, apart, strict=True)):
        # Vectorised instructions may round differently than the code for the remainder, for instance in ELU and SiLU.
        return "the last bits of a client's result depend on the other clients in its batch"
    return None


def _stable(lr: float, plan: LocalPlan) -> float:
    """Return a step size that is stable with the proximal term, lr · μ < 2."""
    return min(lr, 1 / plan.mu) if plan.mu else lr


def _equal(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0.0, atol=0.0, equal_nan=True)
