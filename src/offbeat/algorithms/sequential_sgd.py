"""Sequential SGD: the reference curve without federation."""

from dataclasses import replace

from torch import Tensor

from offbeat.algorithms.components import Algorithm, ClosedBuffer, Continuous, Count, Each, LocalPlan, RunFacts


class SequentialSGD(Algorithm):
    """One machine with all the data takes a cohort's local steps one by one.

    A round is ``cohort`` · ``local.steps`` steps of SGD on all clients' examples together, βNC in the paper. The
    machine is as fast as the cohort's clients together, on average, so that its round takes as long as their visits
    without transfers. Nothing travels, and the machine is always online.

    It is the reference curve of Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup under
    Intermittent Client Availability" (2020), section 6.

    Args:
        cohort: Clients whose steps a round is made of, m ≥ 1.

    Examples:
        >>> history = offbeat.simulate(model, "digits", SequentialSGD(cohort=1), **world)
        >>> int(history.version.iloc[-1])  # one at a time
        20
    """

    name = "sequential_sgd"
    payload = "params"
    pooled = True

    cohort: Count = 10

    def compose(self) -> None:
        self.schedule = Continuous(concurrency=1)
        self.buffer = Each()

    def check_run(self, run: RunFacts) -> None:
        if run.clients != 1:
            raise ValueError(f"sequential SGD is for 1 client that holds all the data, got {run.clients} clients")

    def check_local(self, local: LocalPlan) -> None:
        if local.steps_by is not None:
            raise ValueError("sequential SGD takes cohort · local.steps steps: set local.steps to a number")

    def plan(self, client: int, local: LocalPlan) -> LocalPlan:
        if isinstance(local.lr, tuple):
            raise ValueError("sequential SGD has one step size: give lr as a number")
        # The proximal term keeps a client near the others' model; here there are no others.
        return replace(local, steps=self.cohort * local.steps, mu=0.0)

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        return closed.entries[-1].vector
