"""SCAFFOLD: rounds in which each local gradient is corrected by control variates."""

import torch
from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    ClosedBuffer,
    Count,
    LocalPlan,
    OverSelection,
    Positive,
    Rounds,
    ServerOptimizer,
    ServerStep,
    Sum,
    Update,
    Weight,
)


class SCAFFOLD(Algorithm):
    """Synchronous rounds with drift correction: local gradients are ``g − c_i + c``.

    With P the sum of a visit's step sizes (steps · lr if they are equal), a client's control variate becomes
    ``c_i ← Δ_i / P − (c − c_i)`` once its update has counted. The server takes the step
    ``w ← w − server_lr · mean_S Δ_i`` over the clients S of the round, and ``c ← c + (1/N) Σ_S (Δ_i / P − c)``, which
    keeps c the mean of all c_i. The vector c travels to clients beside the model; each keeps its own c_i.

    Karimireddy, Kale, Mohri, Reddi, Stich and Suresh, "SCAFFOLD: Stochastic Controlled Averaging for Federated
    Learning" (ICML 2020), Algorithm 1 with option II.

    Args:
        cohort: Updates a round, m ≥ 1.
        server_lr: Step size on the averaged delta, > 0.
        over_selection: r, 1 ≤ r ≤ 1000; 1.3 assigns 30 % more clients than the round waits for.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Examples:
        >>> history = offbeat.simulate(model, "digits", SCAFFOLD(cohort=5), **world)
        >>> int(history.version.iloc[-1])  # 5 a round
        4
    """

    name = "scaffold"
    corrects_gradients = True

    cohort: Count = 10
    server_lr: Positive = 1.0
    over_selection: OverSelection = 1.0
    server_optimizer: ServerOptimizer | None = None

    def compose(self) -> None:
        self.schedule = Rounds(self.cohort, self.over_selection)
        self.buffer = Sum("path")
        self.step = ServerStep(self.server_optimizer, self.server_lr)

    def begin(self, model: Tensor) -> None:
        self.control = torch.zeros_like(model)  # c
        self.heard: dict[int, int] = {}  # the version of each client's last counted update

    def plan(self, client: int, local: LocalPlan) -> LocalPlan:
        if local.compression is not None or local.momentum or local.mu or local.optimizer != "sgd":
            raise ValueError(
                "SCAFFOLD's c_i are means of plain gradients: leave compression, momentum, mu and optimizer out"
            )
        return local

    def weigh(self, update: Update) -> Weight:
        if update.plan is None or update.steps != update.plan.steps:
            raise ValueError(
                f"client {update.client} took {update.steps} steps, but SCAFFOLD needs all steps of its plan"
            )
        if update.since != self.heard.get(update.client):
            raise ValueError(f"client {update.client} has lost its control variate: let it enrol anew")
        return Weight(1.0, path=update.plan.path)

    def note(self, update: Update) -> None:
        self.heard[update.client] = update.version

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        path, mean = closed.tallies["path"] / closed.count, closed.mean(closed.count)
        following = self.step(model, mean)
        self.control = self.control + (mean / path - self.control) * (closed.count / self.clients)
        return following

    def down(self) -> Tensor:
        _ = self.model  # takes the steps that move c
        return self.control
