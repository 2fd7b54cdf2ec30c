"""Ringmaster ASGD: a step at every arrival, unless its update is too old."""

from collections.abc import Collection

from torch import Tensor

from offbeat.algorithms.components import Algorithm, ClosedBuffer, Continuous, Count, Positive, Sum


class RingmasterASGD(Algorithm):
    """Plain asynchronous steps that leave out updates older than a bound.

    An update of staleness τ < R makes the step ``w ← w − server_lr · Δ_i``; an older one is unused. With ``stops``
    clients whose update would be too old stop at once and can be assigned again. R = 1 counts fresh updates only.

    Maranjyan, Tyurin and Richtárik, "Ringmaster ASGD: The First Asynchronous SGD with Optimal Time Complexity" (2025),
    Algorithm 4, with stops Algorithm 5. The paper is for clients with the same data.

    Args:
        delay_bound: R ≥ 1, in versions.
        server_lr: Step size on a delta, > 0.
        stops: Stop clients whose update is too old; else they finish, and their update is unused.
        concurrency: Clients at work at the same time, ≥ 1.

    Examples:
        >>> history = offbeat.simulate(model, "digits", RingmasterASGD(delay_bound=4), **world)
        >>> int(history.version.iloc[-1])  # each makes a version, unless it is too old
        20
    """

    name = "ringmaster"
    grows = True

    delay_bound: Count = 10
    server_lr: Positive = 1.0
    stops: bool = True
    concurrency: Count = 10

    @property
    def wants_all(self) -> bool:
        return False

    def compose(self) -> None:
        self.schedule = Continuous(self.concurrency)
        self.buffer = Sum()

    def wants(self, client: int, version: int) -> bool:
        return super().wants(client, version) and self.version - version < self.delay_bound

    def cancelled(self) -> Collection[int]:
        return self.schedule.before(self.version - self.delay_bound + 1) if self.stops else ()

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return model.sub(closed.mean(closed.count), alpha=self.server_lr)
