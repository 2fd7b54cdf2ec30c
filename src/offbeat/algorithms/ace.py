"""ACE: every arrival steps along the mean of all clients' latest updates."""

from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    ClosedBuffer,
    Continuous,
    Count,
    LatestOfEach,
    Positive,
    Shares,
    Update,
    Weighting,
)


class ACE(Algorithm):
    """Asynchronous steps along the average of every client's latest update.

    The name stands for all-client engagement.

    When client j's update arrives, ``u ← u + p_j (Δ_j − its last counted Δ_j)`` and ``w ← w − server_lr · u``. So u is
    the weighted average of all N clients' latest updates, in which fast clients do not count for more. p_j is the
    client's share of the objective, 1/N for equal shares.

    Chang et al., "Mitigating Participation Imbalance Bias in Asynchronous Federated Learning" (arXiv 2511.19066, 2025).
    There all N clients upload before the first step; here a client that was never heard counts with an update of 0, as
    in FedLaAvg.

    Args:
        server_lr: Step size on the average, > 0.
        concurrency: Clients at work at the same time, ≥ 1.
        weighting: ``examples`` (p_i by the data weights that ``start`` is given) or ``uniform`` (the paper's 1/N).
        server_keeps_updates: The server keeps every client's latest update, O(Nd), for clients that lose theirs.

    Examples:
        >>> history = offbeat.simulate(model, "digits", ACE(server_lr=0.5, concurrency=10), **world)
        >>> int(history.version.iloc[-1])  # each makes a version
        20
    """

    name = "ace"
    payload = "difference"
    averages_old_updates = True

    server_lr: Positive = 1.0
    concurrency: Count = 100
    weighting: Weighting = "examples"
    server_keeps_updates: bool = False

    def compose(self) -> None:
        self.schedule = Continuous(self.concurrency)
        self.buffer = LatestOfEach(kept_by_server=self.server_keeps_updates)
        self.shares = Shares(self.weighting)

    def weigh(self, update: Update) -> float:
        return self.shares[update.client]

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return model.sub(closed.total(), alpha=self.server_lr)
