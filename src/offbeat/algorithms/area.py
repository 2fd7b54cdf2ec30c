"""AREA: the model is the average of the models that all clients sent last."""

from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    ClosedBuffer,
    Continuous,
    Count,
    Each,
    LatestModels,
    Shares,
    Update,
    Weighting,
)


class AREA(Algorithm):
    """Asynchronous exact averaging: a client's new model replaces its last one.

    When client j's model x_j arrives, ``w ← w + p_j (x_j − y_j)`` and ``y_j ← x_j``, with y_j = w_0 at the start. So w
    is the weighted average of the models that all N clients sent last, however often each of them sends. p_j is the
    client's share of the objective, 1/N for equal shares.

    Iakovidou and Kim, "Asynchronous Federated Stochastic Optimization for Heterogeneous Objectives Under Arbitrary
    Delays" (arXiv 2405.10123, 2024). There clients keep y_j and upload x_j − y_j. Here they upload x_j and the server
    keeps y_j: w is the same, and a lost upload changes neither w nor y_j.

    Args:
        buffer_size: Models that make a version, K ≥ 1; the paper's Δ.
        concurrency: Clients at work at the same time, ≥ 1; all N in the paper.
        weighting: ``examples`` (p_i by the data weights that ``start`` is given) or ``uniform`` (1/N).

    Examples:
        >>> history = offbeat.simulate(model, "digits", AREA(buffer_size=4, concurrency=10), **world)
        >>> int(history.version.iloc[-1])  # 4 a version
        5
    """

    name = "area"
    payload = "params"

    buffer_size: Count = 1
    concurrency: Count = 100
    weighting: Weighting = "examples"

    def compose(self) -> None:
        self.schedule = Continuous(self.concurrency)
        self.buffer = Each()
        self.shares = Shares(self.weighting)
        self.latest = LatestModels()

    def begin(self, model: Tensor) -> None:
        self.latest.begin(model)

    def weigh(self, update: Update) -> float:
        return self.shares[update.client]

    def is_ready(self) -> bool:
        return self.buffer.count >= self.buffer_size

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return self.latest.replace(closed.entries)
