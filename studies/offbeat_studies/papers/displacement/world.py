"""World of the study: softmax clients, delayed uploads, many seeds at once."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.tables.section import Count, Positive, Section
from pydantic import Field
from torch import Tensor

from offbeat.data.catalogue import load_dataset
from offbeat.population.partition.by_label import dirichlet

_POOL = 2  # pixels are averaged over squares of this side


class World(Section):
    """``[displacement.world]``: what all algorithms and seeds share."""

    clients: Count
    """N."""
    alpha: Positive
    """The Dirichlet concentration of the clients' labels."""
    steps: Count
    """Local steps of a visit."""
    batch_size: Count
    """Examples in a local step."""
    lr: Positive
    """The reference step size."""
    spread: Annotated[float, Field(ge=0, lt=1)]
    """A visit takes 1 ± spread units of time, uniformly."""
    test_examples: Count
    """Of the test set, chosen evenly."""
    target: Annotated[float, Field(gt=0, lt=1)]
    """The accuracy to reach."""
    every: Count
    """Uploads between two evaluations."""
    budget: Count
    """The largest number of uploads."""


@dataclass(frozen=True)
class Data:
    """Examples ``(n, d)`` with a constant feature for the bias, and labels."""

    inputs: Tensor
    one_hot: Tensor
    labels: NDArray[np.int64]
    test_inputs: Tensor
    test_labels: Tensor


@lru_cache(maxsize=1)
def load_data(test_examples: int) -> Data:
    """Return Fashion-MNIST at half its resolution."""
    whole = load_dataset("fashion-mnist")
    assert isinstance(whole.train_inputs, np.ndarray)
    assert isinstance(whole.test_inputs, np.ndarray)
    every = len(whole.test_labels) // test_examples
    labels = torch.from_numpy(whole.train_labels)
    return Data(
        _features(whole.train_inputs),
        torch.nn.functional.one_hot(labels).float(),
        whole.train_labels,
        _features(whole.test_inputs[::every]),
        torch.from_numpy(whole.test_labels[::every]),
    )


def _features(images: NDArray[np.float32]) -> Tensor:
    pooled = torch.nn.functional.avg_pool2d(torch.from_numpy(images).reshape(len(images), 1, 28, 28), _POOL)
    return torch.nn.functional.pad(pooled.flatten(1), (0, 1), value=1.0)


@dataclass(frozen=True)
class Visits:
    """One seed's visits, in the order of their uploads.

    Attributes:
        clients: The client of each upload, ``(uploads,)``.
        assignments: The number of each upload's assignment, ``(uploads,)``. Assignments 0 … M − 1 are made at the
            start, assignment M + n right after upload n.
        assigned: The client of each assignment.
        examples: The numbers of each visit's examples, ``(uploads, steps · batch_size)``.
    """

    clients: NDArray[np.int64]
    assignments: NDArray[np.int64]
    assigned: NDArray[np.int64]
    examples: NDArray[np.int64]


@lru_cache(maxsize=64)
def visits(world: World, at_work: int, seed: int) -> Visits:
    """Return a seed's visits with so many clients at work, for all algorithms."""
    random = np.random.default_rng([seed, at_work])
    shards = dirichlet(load_data(world.test_examples).labels, world.clients, world.alpha, seed)
    order, assigned = arrivals(random, world.clients, at_work, world.budget, world.spread)
    clients = assigned[order]
    places = random.random((world.budget, world.steps * world.batch_size))
    examples = np.stack(
        [
            shards[client][(len(shards[client]) * row).astype(np.int64)]
            for client, row in zip(clients, places, strict=True)
        ]
    )
    return Visits(clients, order, assigned, examples)


def arrivals(
    random: np.random.Generator, clients: int, at_work: int, uploads: int, spread: float
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the assignment of each upload, and the client of each assignment."""
    idle = list(range(clients))
    assigned: list[int] = []
    working: list[tuple[float, int]] = []
    order: list[int] = []

    def assign(now: float) -> None:
        place = int(random.integers(len(idle)))
        idle[place], idle[-1] = idle[-1], idle[place]
        assigned.append(idle.pop())
        heapq.heappush(working, (now + 1 + spread * (2 * float(random.random()) - 1), len(assigned) - 1))

    for _ in range(at_work):
        assign(float(random.random()))  # the first visits end evenly, not all at once
    while len(order) < uploads:
        now, number = heapq.heappop(working)
        order.append(number)
        idle.append(assigned[number])
        assign(now)
    return np.array(order), np.array(assigned)


def train(starts: Tensor, examples: NDArray[np.int64], data: Data, lr: float, steps: int) -> Tensor:
    """Return the end points of visits from ``starts``, ``(visits, d · 10)``."""
    chosen = torch.from_numpy(examples)
    inputs = data.inputs[chosen].unflatten(1, (steps, -1))
    one_hot = data.one_hot[chosen].unflatten(1, (steps, -1))
    weights = starts.unflatten(1, (inputs.shape[-1], -1))
    for step in range(steps):
        x = inputs[:, step]
        error = torch.softmax(x @ weights, -1) - one_hot[:, step]
        weights = torch.baddbmm(weights, x.transpose(1, 2), error, alpha=-lr / x.shape[1])
    return weights.flatten(1)


def accuracies(models: Tensor, data: Data) -> list[float]:
    """Return the test accuracy of each model, ``(models, d · 10)``."""
    weights = models.unflatten(1, (data.test_inputs.shape[1], -1))
    found: Sequence[float] = ((data.test_inputs @ weights).argmax(-1) == data.test_labels).float().mean(-1).tolist()
    return list(found)
