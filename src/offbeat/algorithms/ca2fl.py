"""CA²FL: FedBuff, calibrated by the average of all clients' latest updates."""

import torch
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


class CA2FL(Algorithm):
    """Buffered asynchronous steps, calibrated by a cache of all clients' updates.

    The name stands for cache-aided asynchronous federated learning.

    Let h_i be client i's latest update and h the average of all N, as of the last step. At the K-th arrival
    ``w ← w − server_lr · (h + (1/K) Σ_S (Δ_i − h_i))`` over the K updates S, and ``h ← h + (1/N) Σ_S (Δ_i − h_i)``.
    With unequal shares p_i of the objective each Δ_i − h_i is multiplied by p_i N. A client that comes twice before a
    step counts with its newer update, since its two differences add up to that update minus h_i.

    Wang, Cao, Wu, Chen and Chen, "Tackling the Data Heterogeneity in Asynchronous Federated Learning with Cached Update
    Calibration" (ICLR 2024). There h_i is kept by the server.

    Args:
        buffer_size: K ≥ 1.
        server_lr: Step size on the calibrated mean, > 0.
        concurrency: Clients at work at the same time, ≥ 1.
        weighting: ``examples`` (p_i by the data weights that ``start`` is given) or ``uniform`` (the paper's 1/N).
        server_keeps_updates: The server keeps every client's latest update, O(Nd), for clients that lose theirs.

    Examples:
        >>> history = offbeat.simulate(model, "digits", CA2FL(buffer_size=4, concurrency=10), **world)
        >>> int(history.version.iloc[-1])  # 4 a version
        5
    """

    name = "ca2fl"
    payload = "difference"
    averages_old_updates = True

    buffer_size: Count = 10
    server_lr: Positive = 1.0
    concurrency: Count = 100
    weighting: Weighting = "examples"
    server_keeps_updates: bool = False

    def compose(self) -> None:
        self.schedule = Continuous(self.concurrency)
        self.buffer = LatestOfEach(kept_by_server=self.server_keeps_updates)
        self.shares = Shares(self.weighting)

    def begin(self, model: Tensor) -> None:
        self.cached = torch.zeros_like(model)  # h

    def weigh(self, update: Update) -> float:
        return self.shares[update.client]

    def is_ready(self) -> bool:
        return self.buffer.count >= self.buffer_size

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        average = closed.total()  # h + (1/N) Σ_S (Δ_i − h_i)
        calibrated = self.cached.lerp(average, self.clients / closed.count)
        self.cached = average
        return model.sub(calibrated, alpha=self.server_lr)
