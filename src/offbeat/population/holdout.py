"""Held-out examples of clients, which they do not train on."""

import numpy as np
from numpy.typing import NDArray
from offbeat_core.randomness import Purpose

from offbeat.uniform_numbers import uniform

Shards = list[NDArray[np.int64]]


def hold_out(shards: Shards, share: float, seed: int) -> tuple[Shards, Shards]:
    """Divide each client's shard at random into a part to train on, and the rest.

    Of n examples a client holds out ``share`` · n, rounded, and keeps at least one. Both parts have the shard's order.
    """
    kept: Shards = []
    held_out: Shards = []
    for client, shard in enumerate(shards):
        number = min(round(share * len(shard)), max(len(shard) - 1, 0))
        is_held_out = np.zeros(len(shard), dtype=np.bool_)
        if number:
            keys = uniform(seed, Purpose.HOLDOUT, client, draw=np.arange(len(shard)))
            is_held_out[keys.argsort(kind="stable")[:number]] = True
        kept.append(shard[~is_held_out])
        held_out.append(shard[is_held_out])
    return kept, held_out
