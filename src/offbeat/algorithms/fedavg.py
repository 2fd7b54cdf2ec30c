"""FedAvg: synchronous rounds, whose updates are averaged."""

from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    ClosedBuffer,
    Count,
    OverSelection,
    Positive,
    Rounds,
    ServerOptimizer,
    ServerStep,
    Sum,
    Update,
    Weighting,
)


class FedAvg(Algorithm):
    """Synchronous rounds: a cohort works from one model; its updates are averaged.

    ``w_{t+1} = w_t − server_lr · Σ p_i Δ_i`` over the first m = ``cohort`` updates, with ``p_i = n_i / Σ n`` or
    uniform. With over-selection r, ``ceil(m · r)`` clients are assigned, and updates after the first m are not wanted.
    A lost client is not replaced. The round ends with the m-th update, when every assigned client was heard or lost, or
    at a ``tick``, its deadline. If all clients were lost, a new round begins without a new version.

    FedSGD is FedAvg with one local step; FedProx is FedAvg with a local ``mu`` > 0.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data" (AISTATS 2017),
    Algorithm 1; over-selection: Bonawitz et al., "Towards Federated Learning at Scale" (MLSys 2019).

    Args:
        cohort: Updates a round, m ≥ 1.
        server_lr: Step size on the averaged delta, > 0.
        weighting: ``examples`` (p_i ∝ n_i) or ``uniform``.
        over_selection: r, 1 ≤ r ≤ 1000; 1.3 assigns 30 % more clients than the round waits for.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Examples:
        >>> history = offbeat.simulate(model, "digits", FedAvg(cohort=5, over_selection=1.4), **world)
        >>> int(history.version.iloc[-1])  # 5 a round, the first of 7
        4
    """

    name = "fedavg"
    weighs_by_examples = True

    cohort: Count = 10
    server_lr: Positive = 1.0
    weighting: Weighting = "examples"
    over_selection: OverSelection = 1.0
    server_optimizer: ServerOptimizer | None = None

    def compose(self) -> None:
        self.schedule = Rounds(self.cohort, self.over_selection)
        self.buffer = Sum()
        self.step = ServerStep(self.server_optimizer, self.server_lr)

    def weigh(self, update: Update) -> float:
        return float(update.examples) if self.weighting == "examples" else 1.0

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return self.step(model, closed.mean(closed.weight))
