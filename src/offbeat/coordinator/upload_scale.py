"""The factor by which a client scales an update that it masks."""

import torch
from offbeat_core.local_plan import normaliser
from offbeat_private.masks.scale import SMALLEST_SCALE

from offbeat.algorithms.components import Algorithm, LocalPlan, Update


def upload_scale(algorithm: Algorithm, client: int, version: int, plan: LocalPlan) -> float:
    """Return the factor of an update whose upload begins now.

    A ``ValueError`` if it is above 1, which no client accepts.
    """
    scale = algorithm.scale(Update(client, version, torch.empty(0), 1, plan.steps, normaliser(plan), plan=plan))
    if not scale <= 1:
        raise ValueError(f"{algorithm.name} gives an update the weight {scale:.6g}: at most 1 is private")
    return max(scale, SMALLEST_SCALE)
