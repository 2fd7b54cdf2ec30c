"""FedAsync: every update is mixed into the model as it arrives."""

from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    ClosedBuffer,
    Continuous,
    Count,
    Each,
    Share,
    Staleness,
    Update,
    polynomial,
)


class FedAsync(Algorithm):
    """Fully asynchronous: clients' end points are mixed into the model on arrival.

    ``w_{t+1} = (1 − α_t) w_t + α_t w_i`` with ``α_t = mixing_alpha · s(τ)``, computed anew for each arrival.

    Xie, Koyejo and Gupta, "Asynchronous Federated Optimization" (2019), Algorithm 1. There τ begins at 1; here a
    fresh update has τ = 0 and counts in full.

    Args:
        mixing_alpha: α, 0 < α ≤ 1.
        staleness: The weight s(τ).
        concurrency: Clients at work at the same time, ≥ 1.

    Examples:
        >>> history = offbeat.simulate(model, "digits", FedAsync(mixing_alpha=0.4, concurrency=5), **world)
        >>> int(history.version.iloc[-1])  # each makes a version
        20
    """

    name = "fedasync"
    grows = True
    payload = "params"

    mixing_alpha: Share = 0.6
    staleness: Staleness = polynomial(a=0.5)
    concurrency: Count = 10

    def compose(self) -> None:
        self.schedule = Continuous(self.concurrency)
        self.buffer = Each()

    def weigh(self, update: Update) -> float:
        return self.mixing_alpha * self.staleness(self.age(update))

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        (entry,) = closed.entries
        return model.lerp(entry.vector, entry.weight)
