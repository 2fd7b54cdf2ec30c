"""The mean loss of several minibatches, each by what its own mean divides by."""

from collections.abc import Sequence

import torch
from torch import Tensor


def mean_loss(losses: Sequence[float], counts: Sequence[float | None], sizes: Sequence[int]) -> float | None:
    """Return the loss on all minibatches together; None if they have no target.

    Args:
        losses: The mean loss of each minibatch; ignored if it has no target.
        counts: What each mean divides by, such as the number of targets that are not ignored; None if unknown.
        sizes: The number of examples of each. They count where a count is unknown, or all are in proportion to them.
    """
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or all(
        count * sizes[0] == known[0] * size for count, size in zip(known, sizes, strict=True)
    ):
        if known and not any(known):
            return None
        known = list(sizes)
    total = sum(known)
    return sum(loss * count for loss, count in zip(losses, known, strict=True) if count) / total if total else None


def mean_of_steps(losses: Sequence[Tensor], counts: Sequence[Tensor | None], sizes: Sequence[int]) -> Tensor:
    """Return the mean loss of a visit's steps, ``()``.

    As ``mean_loss``, but 0 if no step has a target. On the losses' device, without waiting for it.
    """
    values = torch.stack(list(losses)).float()
    known = [count for count in counts if count is not None]
    if len(known) < len(counts):
        if len(set(sizes)) == 1:
            return values.mean()
        known = list(torch.tensor(sizes, device=values.device))
    weights = torch.stack(known).float()
    total = weights.sum()
    weighted = (values * weights).where(weights > 0, 0.0).sum() / total
    is_plain = (weights == weights[0]).all() & (total > 0)
    return values.mean().where(is_plain, weighted).where(total > 0, 0.0)
