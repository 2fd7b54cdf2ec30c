"""Minibatches of many visits at once."""

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.randomness import Purpose, words
from torch import Tensor

from offbeat.uniform_numbers import smallest_in_rows

Integers = NDArray[np.int64]


def example_orders(
    seed: int, clients: Integers, visits: Integers, examples: Integers, draws: Integers
) -> list[Integers]:
    """Return ``randomness.example_order`` for each of B visits; arrays are ``(B,)``.

    A visit draws ``draws`` of its client's ``examples``, at least one, after ``visits`` earlier visits.
    """
    epochs = -(-draws // examples)
    order: list[Integers] = [np.empty(0, np.int64)] * len(clients)
    # Visits with similar numbers of examples share a table with one row per epoch.
    widths = 1 << np.ceil(np.log2(examples)).astype(np.int64)
    for width in np.unique(widths):
        chosen = np.flatnonzero(widths == width)
        rows = np.repeat(chosen, epochs[chosen])
        first = np.concatenate([np.arange(count) for count in epochs[chosen]]) * examples[rows]
        columns = np.arange(examples[chosen].max())
        high, low, _, _ = words(
            seed, Purpose.MINIBATCHES, clients[rows, None], visits[rows, None], first[:, None] + columns
        )
        keys = high << np.uint64(32) | low
        end = 0
        for visit in chosen:
            begin, end = end, end + epochs[visit]
            order[visit] = smallest_in_rows(keys[begin:end, : examples[visit]], draws[visit])
    return order


def gather(examples: Tensor, chosen: Tensor) -> Tensor:
    """Return ``examples[chosen]`` in half the time; ``chosen`` are int64 of any shape."""
    rows = torch.index_select(examples, 0, chosen.reshape(-1))
    return rows.view(*chosen.shape, *examples.shape[1:])
