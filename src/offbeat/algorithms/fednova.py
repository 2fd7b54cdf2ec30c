"""FedNova: synchronous rounds for clients with different numbers of steps.

Updates are averaged by direction.
"""

from offbeat_core.local_plan import normaliser
from torch import Tensor

from offbeat.algorithms.components import (
    DOES_NOT_COUNT,
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
    check_not_negative,
)


class FedNova(Algorithm):
    """Synchronous rounds like FedAvg's; more local steps do not count for more.

    ``w_{t+1} = w_t − server_lr · (Σ p_i a_i) · Σ p_i Δ_i / a_i``, ``p_i = n_i / Σ n``: the clients' directions
    Δ_i / a_i are averaged, and the model moves along their mean by the clients' mean number of steps. With equal a_i
    this is FedAvg. Rounds begin and end as in FedAvg, over-selection included.

    A client that was cut short before its first step, a_i = 0, has no direction. It fills its place in the round, but
    it is left out of all three sums; a round without any direction does not make a version.

    Wang, Liu, Liang, Joshi and Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
    Optimization" (NeurIPS 2020).

    Args:
        cohort: Updates a round, m ≥ 1.
        server_lr: Step size on the averaged delta, > 0.
        over_selection: r, 1 ≤ r ≤ 1000; 1.3 assigns 30 % more clients than the round waits for.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Examples:
        >>> history = offbeat.simulate(model, "digits", FedNova(cohort=5), **world)
        >>> int(history.version.iloc[-1])  # 5 a round
        4
    """

    name = "fednova"
    weighs_by_examples = True

    cohort: Count = 10
    server_lr: Positive = 1.0
    over_selection: OverSelection = 1.0
    server_optimizer: ServerOptimizer | None = None

    def compose(self) -> None:
        self.schedule = Rounds(self.cohort, self.over_selection)
        self.buffer = Sum("examples", "examples_times_a")
        self.step = ServerStep(self.server_optimizer, self.server_lr)

    def check_local(self, local: LocalPlan) -> None:
        if local.optimizer != "sgd":
            raise ValueError("FedNova's a_i are weights of SGD's gradients: leave optimizer out")

    def divisor(self, plan: LocalPlan) -> float:
        return normaliser(plan)

    def weigh(self, update: Update) -> Weight:
        n, a = int(update.examples), float(update.normaliser)
        if a == 0:
            return DOES_NOT_COUNT
        check_not_negative("examples / normaliser", n / a)
        return Weight(n / a, examples=n, examples_times_a=n * a)

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        examples = closed.tallies["examples"]
        mean_a = closed.tallies["examples_times_a"] / examples
        return self.step(model, closed.mean(examples / mean_a))
