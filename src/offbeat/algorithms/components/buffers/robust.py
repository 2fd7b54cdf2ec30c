"""Robust means of updates, which a few malicious clients cannot move far.

Both rules tolerate f = ⌊(n − 3)/2⌋ malicious updates of n, the most that Krum's theory allows; n < 3 updates are
averaged. Updates are not weighted.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from offbeat.algorithms.components.buffers.aggregate import Aggregate, ClosedBuffer, Sum
from offbeat.algorithms.components.buffers.single_updates import Each

if TYPE_CHECKING:
    from offbeat.algorithms.components.algorithm import Algorithm
    from offbeat.algorithms.components.buffers.wrappers import Wrap

Rule = Callable[[Tensor], Tensor]
"""Maps updates, the rows of ``(n, d)``, to their robust mean ``(d,)``."""


def trimmed_mean(updates: Tensor) -> Tensor:
    """Return the mean of each coordinate without its f largest and f smallest values.

    Yin, Chen, Ramchandran and Bartlett, "Byzantine-Robust Distributed Learning" (ICML 2018), Definition 2.
    """
    tolerated = _tolerated(len(updates))
    return updates.sort(dim=0).values[tolerated : len(updates) - tolerated].mean(dim=0)


def krum(updates: Tensor) -> Tensor:
    """Return the update with the closest n − f − 2 neighbours.

    Closest means the smallest sum of squared distances.

    Blanchard, El Mhamdi, Guerraoui and Stainer, "Machine Learning with Adversaries" (NeurIPS 2017), section 4.
    """
    number = len(updates)
    if number < 3:
        return updates.mean(dim=0)
    distances = torch.cdist(updates, updates, compute_mode="donot_use_mm_for_euclid_dist").square()
    # The nearest of all is the update itself.
    nearest = distances.sort(dim=1).values[:, 1 : number - _tolerated(number) - 1]
    # index_select takes the index without reading it, for which a GPU would wait.
    return updates.index_select(0, nearest.sum(dim=1).argmin(dim=0, keepdim=True)).squeeze(0)


RULES: dict[str, Rule] = {"trimmed_mean": trimmed_mean, "krum": krum}


class Robust(Each):
    """A buffer that holds its updates and releases their robust mean."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def release(self, version: int) -> ClosedBuffer:
        entries = super().release(version).entries
        return ClosedBuffer(
            version,
            lambda: self._rule(torch.stack([entry.vector for entry in entries])),
            count=len(entries),
            weight=sum(entry.weight for entry in entries),
            oldest=min((entry.update.version for entry in entries), default=None),
            is_mean=True,
        )


def robust(name: str) -> "Wrap":
    """Return a wrapper that replaces a plain mean of deltas by ``RULES[name]``."""

    def wrap(algorithm: "Algorithm[Any]") -> Aggregate:
        buffer = algorithm.buffer
        # Clients that correct their gradients remember what they sent, and the server must sum just that.
        if not isinstance(buffer, Sum) or buffer.tallies or algorithm.corrects_gradients:
            raise ValueError(
                f"aggregate = '{name}' does not go with {algorithm.name}: it takes the place of a mean of deltas"
            )
        return Robust(RULES[name])

    return wrap


def _tolerated(number: int) -> int:
    return max(0, (number - 3) // 2)
