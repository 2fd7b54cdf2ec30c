"""Ringleader ASGD: steps along a table of every client's mean update."""

from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    ClientMeans,
    ClosedBuffer,
    Continuous,
    Count,
    Positive,
    Shares,
    Update,
    Weighting,
)


class RingleaderASGD(Algorithm):
    """Asynchronous steps along the average of every client's mean update, in rounds.

    A round first collects updates until there is at least one of every client. Then it takes N steps
    ``w ← w − server_lr · Σ p_i m_i``, m_i the mean of client i's updates in the round: one step at the arrival that
    completed the table, one at the next arrival of each other client, whose update joins its m_i first. What a client
    uploads after its step counts in the next round. So fast clients do not count for more, and with all N clients at
    work no update is older than 2N − 2 versions. p_i is the client's share of the objective, 1/N for equal shares.

    Maranjyan and Richtárik, "Ringleader ASGD: The First Asynchronous SGD with Optimal Time Complexity under Data
    Heterogeneity" (arXiv 2509.22860, 2025).

    Args:
        server_lr: Step size on the average, > 0.
        concurrency: Clients at work at the same time, ≥ 1; all N in the paper.
        weighting: ``examples`` (p_i by the data weights that ``start`` is given) or ``uniform`` (the paper's 1/N).

    Examples:
        >>> history = offbeat.simulate(model, "digits", RingleaderASGD(server_lr=0.2), **world)
        >>> int(history.version.iloc[-1])  # once each of the 20 clients has sent one
        1
    """

    name = "ringleader"
    averages_old_updates = True

    server_lr: Positive = 1.0
    concurrency: Count = 100
    weighting: Weighting = "examples"

    def compose(self) -> None:
        self.schedule = Continuous(self.concurrency)
        self.buffer = ClientMeans()
        self.shares = Shares(self.weighting)

    def weigh(self, update: Update) -> float:
        return self.shares[update.client]

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return model.sub(closed.total(), alpha=self.server_lr)
