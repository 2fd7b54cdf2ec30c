"""Port: semi-asynchronous aggregation with bounded staleness."""

from collections.abc import Collection

import torch
from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    ClosedBuffer,
    Continuous,
    Count,
    Each,
    Entry,
    NotNegative,
    Positive,
    RunFacts,
    ServerOptimizer,
    ServerStep,
    Update,
)


class Port(Algorithm):
    """A server step once enough updates are in and no working client is too stale.

    Let t be the version and v_i the one that client i works from. The server steps when ``min_clients`` updates are in
    and t − v_i ≤ B = ``staleness_bound`` for all clients at work: ``w_{t+1} = w_t − server_lr · Σ p_i Δ_i`` over all
    updates that are in. Their weights are ``p_i ∝ n_i · (a · (cos(Δ_i, w_{v_i} − w_t) + 1)/2 + b · B/(τ_i + B))``,
    Σ p_i = 1, with a = ``similarity_weight`` and b = ``staleness_weight``.

    The cosine compares a client's update with the movement of the model since the client's version. It is 1 for a fresh
    update and 0 where one of the two is the zero vector. The server asks a client that is too stale for a partial
    update (Port-urgent), or waits for it (Port-non-urgent).

    Su and Li, "How Asynchronous can Federated Learning Be?" (IWQoS 2022).

    Args:
        min_clients: Updates that a step needs, ≥ 1.
        staleness_bound: B ≥ 1, in versions.
        urgent_requests: Ask a client that is too stale for a partial update; else wait for it.
        similarity_weight: a ≥ 0.
        staleness_weight: b ≥ 0; not both 0.
        server_lr: Step size on the weighted mean of the deltas, > 0.
        concurrency: Clients at work at the same time, ≥ ``min_clients``.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Examples:
        >>> history = offbeat.simulate(model, "digits", Port(min_clients=4, staleness_bound=3), **world)
        >>> int(history.version.iloc[-1])  # at least 4 a version
        5
    """

    name = "port"
    grows = True
    needs_base = True
    weighs_by_examples = True

    min_clients: Count = 5
    staleness_bound: Count = 10
    urgent_requests: bool = True
    similarity_weight: NotNegative = 1.0
    staleness_weight: NotNegative = 1.0
    server_lr: Positive = 1.0
    concurrency: Count = 10
    server_optimizer: ServerOptimizer | None = None

    def check_values(self) -> None:
        if self.similarity_weight == self.staleness_weight == 0:
            raise ValueError("similarity_weight and staleness_weight are both 0: raise one of them")
        if self.min_clients > self.concurrency:
            raise ValueError(f"min_clients must be at most concurrency, {self.concurrency}, got {self.min_clients}")

    def check_run(self, run: RunFacts) -> None:
        if self.min_clients > run.clients:
            raise ValueError(
                f"min_clients must be at most the number of clients, {run.clients}, got {self.min_clients}"
            )

    def compose(self) -> None:
        self.schedule = Continuous(self.concurrency)
        self.buffer = Each()
        self.step = ServerStep(self.server_optimizer, self.server_lr)

    def weigh(self, update: Update) -> float:
        if update.base is None:
            raise ValueError("Port compares an update with the model that its client started from: base is missing")
        return float(update.examples)

    def is_ready(self) -> bool:
        return self.buffer.count >= self.min_clients and not self._too_stale()

    def urgent(self) -> Collection[int]:
        return self._too_stale() if self.urgent_requests else ()

    def _too_stale(self) -> Collection[int]:
        return self.schedule.before(self.version - self.staleness_bound)

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        weights = [self._weight(entry, model, closed.version) for entry in closed.entries]
        total = sum(weights)
        mean = torch.zeros_like(model)
        if total > 0:  # else every update points exactly against the model's own way, and staleness does not count
            for entry, weight in zip(closed.entries, weights, strict=True):
                mean.add_(entry.vector, alpha=weight / total)
        return self.step(model, mean)

    def _weight(self, entry: Entry, model: Tensor, version: int) -> float:
        bound, staleness = self.staleness_bound, version - entry.update.version
        cosine = 1.0 if staleness == 0 else _cosine(entry.vector, entry.base - model)
        similarity = (cosine + 1) / 2
        return entry.weight * (
            self.similarity_weight * similarity + self.staleness_weight * bound / (staleness + bound)
        )


def _cosine(one: Tensor, other: Tensor) -> float:
    """Return the cosine of the angle between two vectors; 0 if one of them is zero."""
    # In float64: squares of small float32 numbers vanish.
    first, second = one.to(torch.float64), other.to(torch.float64)
    norms = (first.norm() * second.norm()).item()
    return 0.0 if norms == 0 else min(1.0, max(-1.0, (first @ second).item() / norms))
