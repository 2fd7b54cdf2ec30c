"""The check of a new model before it replaces the current one."""

import math

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import WrongStepError, check_finite


def checked_model(model: Tensor, proposed: object, max_step_norm: float) -> Tensor:
    """Return the proposed model; shorten a step longer than ``max_step_norm``.

    A shortened step keeps its direction.

    Args:
        model: The current model, float32 ``(d,)``.
        proposed: The value that ``next_model`` returned.
        max_step_norm: The largest Euclidean norm of a step.

    Raises:
        NotFiniteError: The new model is not finite.
        WrongStepError: The proposed model is not a float32 vector ``(d,)``.
    """
    length = len(model)
    if not isinstance(proposed, Tensor):
        raise WrongStepError(
            f"next_model must return float32 of shape ({length},), it returned {type(proposed).__name__}"
        )
    if proposed.dtype != torch.float32 or proposed.shape != (length,):
        found = f"{str(proposed.dtype).removeprefix('torch.')} of shape {tuple(proposed.shape)}"
        raise WrongStepError(f"next_model must return float32 of shape ({length},), it returned {found}")
    if max_step_norm < math.inf:
        step = proposed - model
        norm = torch.linalg.vector_norm(step, dtype=torch.float64).item()
        if norm > max_step_norm:
            proposed = model.add(step, alpha=max_step_norm / norm)
    check_finite(proposed, "the new model")
    return proposed
