"""FedCompass: groups of clients that arrive together, by their numbers of steps."""

from dataclasses import replace
from typing import Annotated

import torch
from annotated_types import Interval
from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    ArrivalGroups,
    ByGroup,
    ClosedBuffer,
    LocalPlan,
    Positive,
    Shares,
    Staleness,
    Update,
    Weight,
    Weighting,
    polynomial,
)

LatestFactor = Annotated[float, Interval(ge=1)]
SpeedMomentum = Annotated[float, Interval(gt=0, le=1)]


class FedCompass(Algorithm[ArrivalGroups]):
    """Averages groups of clients whose numbers of steps let them arrive together.

    A client can join an open group if ``Q = ⌊(the group's expected arrival − now) / (its seconds per step)⌋`` is within
    Q_min … Q_max; it joins the group with the largest Q. If it can join none, it begins a new group, with a Q that lets
    it meet another group later, or Q_max if it would meet none. A client of unknown speed takes Q_max steps in a group
    of its own. A client's seconds per step are the time from assignment to arrival over its steps, smoothed over its
    visits.

    A group aggregates when all its members have arrived, or at its deadline, which is λ times as far from its beginning
    as its expected arrival: ``w_{t+1} = w_t − server_lr · Σ p_i s(τ_i) Δ_i`` over the group's updates, and over updates
    that missed the deadlines of their own groups. p_i is the client's share of the objective over all N clients.
    Members wait for the aggregation; then the fastest begins first. A late client begins its next visit at once.

    Li et al., "FedCompass: Efficient Cross-Silo Federated Learning on Heterogeneous Client Devices Using a Computing
    Power-Aware Scheduler" (ICLR 2024); the rules and defaults are those of the authors' code (``APPFL/APPFL`` and
    ``APPFL/FedCompass`` on GitHub).

    Args:
        steps: Q_min and Q_max.
        latest_factor: λ ≥ 1.
        speed_momentum: Weight of the newest visit in a client's seconds per step, in (0, 1].
        server_lr: Step size on the weighted sum of the deltas, > 0.
        staleness: Weight s(τ) of an update that is τ versions old at the aggregation.
        weighting: ``examples`` (p_i by the data weights that ``start`` is given) or ``uniform`` (1/N).

    Examples:
        >>> history = offbeat.simulate(model, "digits", FedCompass(steps=(2, 10)), **world)
        >>> int(history.version.iloc[-1])
        20
    """

    name = "fedcompass"
    selection = "fastest"

    steps: tuple[int, int] = (20, 100)
    latest_factor: LatestFactor = 1.5
    speed_momentum: SpeedMomentum = 0.9
    server_lr: Positive = 0.9
    staleness: Staleness = polynomial(a=0.5)
    weighting: Weighting = "examples"

    def check_values(self) -> None:
        if not 1 <= self.steps[0] <= self.steps[1]:
            raise ValueError(f"steps must be [Q_min, Q_max], 1 ≤ Q_min ≤ Q_max, got {list(self.steps)}")

    def compose(self) -> None:
        self.schedule = ArrivalGroups(self.steps, self.latest_factor, self.speed_momentum)
        self.buffer = ByGroup(self.schedule)
        self.shares = Shares(self.weighting)

    def check_local(self, local: LocalPlan) -> None:
        if local.steps_by is not None:
            raise ValueError("FedCompass chooses the number of steps: set local.steps to any number")

    def plan(self, client: int, local: LocalPlan) -> LocalPlan:
        if isinstance(local.lr, tuple):
            raise ValueError("FedCompass chooses the number of steps: give local.lr as one number")
        return replace(local, steps=self.schedule.choose(client, self.now).steps)

    def assign(self, client: int, local: LocalPlan) -> LocalPlan:
        place = self.schedule.choose(client, self.now)
        plan = super().assign(client, local)
        self.schedule.enter(client, place, self.now)
        return plan

    def weigh(self, update: Update) -> Weight:
        return Weight(self.shares[update.client], round=self.schedule.group_of(update.client, self.now))

    def note(self, update: Update) -> None:
        self.schedule.measure(update.client, update.steps, self.now)

    def deadline(self) -> float:
        return self.schedule.deadline()

    def tick(self) -> bool:
        return self.schedule.expire(self.now) and self._close()

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        total = torch.zeros_like(model)
        for entry in closed.entries:
            total.add_(entry.vector, alpha=entry.weight * self.staleness(closed.version - entry.update.version))
        return model.sub(total, alpha=self.server_lr)
