"""FedLaAvg: the average of every client's latest update, also of offline clients."""

from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    ClosedBuffer,
    Count,
    LatestOfEach,
    Positive,
    Rounds,
    ServerOptimizer,
    ServerStep,
    Shares,
    Update,
    Weighting,
)


class FedLaAvg(Algorithm):
    """Latest averaging: an offline client counts with its latest update.

    In round r, of the available clients the K = ``cohort`` that have been absent longest get x. Each uploads the
    difference of its update to its last counted one, u_i^r − u_i^{R_i}. With p_i the client's share of the objective,
    1/N for equal shares, ``u ← u + Σ p_i (u_i^r − u_i^{R_i})``, ``R_i ← r`` and ``x ← x − server_lr · u``. So u is the
    weighted average of all N clients' latest updates, 0 for a client that never counted. The server holds u and N
    numbers; each client holds its own last update.

    A client that has lost its last update uploads the full new one, which counts only where the server has kept the
    last one.

    Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup under Intermittent Client Availability"
    (2020), Algorithm 1 for one local step, Algorithm 2 for C.

    Args:
        cohort: Clients a round, K = βN ≥ 1.
        server_lr: Step size on u, > 0.
        weighting: ``examples`` (p_i by the data weights that ``start`` is given) or ``uniform`` (1/N).
        server_keeps_updates: The server keeps every client's latest update, O(Nd), for clients that lose theirs.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Examples:
        >>> history = offbeat.simulate(model, "digits", FedLaAvg(cohort=5), **world)
        >>> int(history.version.iloc[-1])  # 5 a round
        4
    """

    name = "fedlaavg"
    payload = "difference"
    averages_old_updates = True
    selection = "longest_absent"

    cohort: Count = 100
    server_lr: Positive = 1.0
    weighting: Weighting = "examples"
    server_keeps_updates: bool = False
    server_optimizer: ServerOptimizer | None = None

    def compose(self) -> None:
        self.schedule = Rounds(self.cohort)
        self.buffer = LatestOfEach(kept_by_server=self.server_keeps_updates)
        self.shares = Shares(self.weighting)
        self.step = ServerStep(self.server_optimizer, self.server_lr)

    def weigh(self, update: Update) -> float:
        return self.shares[update.client]

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return self.step(model, closed.total())
