"""AsyncCommSGD: uninterrupted local SGD under an arbitrary communication pattern."""

from dataclasses import replace

import torch
from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    ByRound,
    ClosedBuffer,
    LocalPlan,
    Period,
    Periodic,
    Positive,
    ServerOptimizer,
    ServerStep,
    Shares,
    Update,
    Weight,
    Weighting,
)
from offbeat.algorithms.components.schedules.patterns import Pattern, round_robin
from offbeat.algorithms.components.weights import StepSizes


class AsyncCommSGD(Algorithm[Periodic]):
    """Clients that never stop working; their steps count when they next talk.

    In round t every client i takes a step from its own point x_i. The clients in C_{t+1} then upload Δ_i, the sum of
    their steps since they last talked, and continue from ``x_{t+1} = x_t − server_lr · Σ_{i ∈ C_{t+1}} p_i Δ_i``. Here
    p_i is the client's share of the objective, 1/N for equal shares: the sum is over C_{t+1}, but the shares are of
    all N clients. A visit runs from one talk of the client to its next, and needs no memory.

    A round lasts ``period`` seconds, and a client's step of a round is ``local.steps`` minibatch steps. An update that
    comes before its round waits for it; a later one counts in the next round. Choose the period such that a round's
    steps and the transfers fit in.

    Avdyukhin and Kasiviswanathan, "Federated Learning under Arbitrary Communication Patterns" (ICML 2021), Algorithm 1;
    the averaged iterate is that of Theorem 2.2.

    Args:
        pattern: The rounds in which each client talks.
        step_sizes: γ_t, one for each round; None takes the run's ``lr``.
        average: Whether ``result`` is ``Σ w_t x_t / Σ w_t`` with ``w_t = (Δ + t)²``, Δ the pattern's longest gap;
            1/p for ``random``, whose gaps have no limit.
        period: Seconds a round, ≥ 0.001.
        weighting: ``examples`` (p_i by the data weights that ``start`` is given) or ``uniform`` (the paper's 1/N).
        server_lr: Step size on the average, > 0; the paper's is 1.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Examples:
        >>> history = offbeat.simulate(model, "digits", AsyncCommSGD(period=5.0), **world)
        >>> int(history.version.iloc[-1])
        4
    """

    name = "async_comm_sgd"

    pattern: Pattern = round_robin(k=2, every=1)
    step_sizes: StepSizes | None = None
    average: bool = False
    period: Period = 1.0
    weighting: Weighting = "examples"
    server_lr: Positive = 1.0
    server_optimizer: ServerOptimizer | None = None

    def compose(self) -> None:
        self.schedule = Periodic(self.period, self.pattern)
        self.buffer = ByRound()
        self.shares = Shares(self.weighting)
        self.step = ServerStep(self.server_optimizer, self.server_lr)

    def begin(self, model: Tensor) -> None:
        # The weighted sum of x_0 … x_{t−1}, in float64 since it is of thousands of terms.
        self.iterates = torch.zeros_like(model if self.average else model[:0], dtype=torch.float64)
        self.weights = 0.0

    def check_local(self, local: LocalPlan) -> None:
        if local.lr_decay is not None:
            raise ValueError("a visit of AsyncCommSGD lasts for several versions: set step_sizes in place of lr_decay")

    def plan(self, client: int, local: LocalPlan) -> LocalPlan:
        if isinstance(local.lr, tuple):
            raise ValueError("the step sizes of AsyncCommSGD come from step_sizes: give local.lr as one number")
        rounds = range(self.schedule.number, self.schedule.talks_in(client))
        plan = replace(local, steps=len(rounds) * local.steps)
        if self.step_sizes is None:
            return plan
        return replace(plan, lr=tuple(lr for lr in map(self.step_sizes, rounds) for _ in range(local.steps)))

    def weigh(self, update: Update) -> Weight:
        return Weight(self.shares[update.client], round=self.schedule.counts_in(update.client))

    def is_ready(self) -> bool:
        return True

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        following = self.step(model, closed.total()) if closed.count else model
        if self.average:
            weight = self._weight(closed.version)
            self.iterates.add_(model, alpha=weight)
            self.weights += weight
        return following

    def _weight(self, number: int) -> float:
        """Return w_t = (Δ + t)² for the round t = ``number``."""
        return float(self.pattern.longest_gap(self.clients) + number) ** 2

    @property
    def result(self) -> Tensor:
        model = self.model  # takes the steps that add to the sum
        if not self.average:
            return model
        weight = self._weight(self.version)
        return (self.iterates.add(model, alpha=weight) / (self.weights + weight)).float()
