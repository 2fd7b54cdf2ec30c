"""MIFA: rounds of the available clients, averaged with the memory of the others."""

from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    Available,
    ClosedBuffer,
    LatestOfEach,
    Positive,
    ServerOptimizer,
    ServerStep,
    Shares,
    Update,
    Weighting,
)


class MIFA(Algorithm):
    """Rounds of the available clients, with a memory of all others' updates.

    The name stands for memory-augmented impatient averaging.

    A round assigns every available client until the first of them uploads, and ends when each of them has uploaded
    or is lost. They refresh their updates Δ_i; then ``w ← w − server_lr · Σ p_i Δ_i`` over the latest updates of all N
    clients, p_i being the client's share of the objective, 1/N for equal shares. With one learning rate for all
    rounds Δ_i = lr · G_i in the paper's terms.

    FedLaAvg has the same memory, but rounds of a fixed number of clients, which wait for each of them.

    Gu, Huang, Zhang and Huang, "Fast Federated Learning in the Presence of Arbitrary Device Unavailability"
    (NeurIPS 2021), Algorithm 1. There the first round waits for all N clients; here a client that was never heard
    counts with an update of 0, as in FedLaAvg.

    Args:
        server_lr: Step size on the average, > 0.
        weighting: ``examples`` (p_i by the data weights that ``start`` is given) or ``uniform`` (the paper's 1/N).
        server_keeps_updates: The server keeps every client's latest update, O(Nd), for clients that lose theirs.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Examples:
        >>> history = offbeat.simulate(model, "digits", MIFA(server_lr=0.5), **world)
        >>> int(history.version.iloc[-1])  # all 20 clients are available
        1
    """

    name = "mifa"
    payload = "difference"
    averages_old_updates = True

    server_lr: Positive = 1.0
    weighting: Weighting = "examples"
    server_keeps_updates: bool = False
    server_optimizer: ServerOptimizer | None = None

    def compose(self) -> None:
        self.schedule = Available()
        self.buffer = LatestOfEach(kept_by_server=self.server_keeps_updates)
        self.shares = Shares(self.weighting)
        self.step = ServerStep(self.server_optimizer, self.server_lr)

    def weigh(self, update: Update) -> float:
        return self.shares[update.client]

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return self.step(model, closed.total())
