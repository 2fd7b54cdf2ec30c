"""FedDyn: rounds in which each client's loss is dynamically regularised."""

from dataclasses import replace

import torch
from torch import Tensor

from offbeat.algorithms.components import (
    Algorithm,
    ClosedBuffer,
    Count,
    LocalPlan,
    OverSelection,
    Positive,
    Rounds,
    Sum,
    Update,
)


class FedDyn(Algorithm):
    """Synchronous rounds with a dynamic regulariser at each client.

    A local gradient is ``g − h_i + α (w − w_start)``: the proximal term of FedProx, and the client's h_i, at first 0,
    which becomes ``h_i + α Δ_i`` once its update has counted. At a stationary point of a visit h_i is then the gradient
    of the client's own loss, so no client drifts from a common minimum. The server's step over the clients S of the
    round is ``q ← q + (1/N) Σ_S Δ_i``, ``w ← w − mean_S Δ_i − q``; αq is the mean of all N clients' h_i.

    Acar, Zhao, Matas Navarro, Mattina, Whatmough and Saligrama, "Federated Learning Based on Dynamic Regularization"
    (ICLR 2021), Algorithm 1; signs and the server's step as in the authors' code (``alpemreacar/FedDyn`` on GitHub).

    Args:
        cohort: Updates a round, m ≥ 1.
        alpha: α > 0, with lr · α < 2.
        over_selection: r, 1 ≤ r ≤ 1000; 1.3 assigns 30 % more clients than the round waits for.

    Examples:
        >>> history = offbeat.simulate(model, "digits", FedDyn(cohort=5, alpha=0.1), **world)
        >>> int(history.version.iloc[-1])  # 5 a round
        4
    """

    name = "feddyn"
    corrects_gradients = True

    cohort: Count = 10
    alpha: Positive = 0.01
    over_selection: OverSelection = 1.0

    def compose(self) -> None:
        self.schedule = Rounds(self.cohort, self.over_selection)
        self.buffer = Sum()

    def begin(self, model: Tensor) -> None:
        self.drift = torch.zeros_like(model)  # q
        self.heard: dict[int, int] = {}  # the version of each client's last counted update

    def check_local(self, local: LocalPlan) -> None:
        self.plan(0, local)

    def plan(self, client: int, local: LocalPlan) -> LocalPlan:
        if local.compression is not None or local.momentum or local.mu or local.optimizer != "sgd":
            raise ValueError("FedDyn's clients take plain steps: leave compression, momentum, mu and optimizer out")
        return replace(local, mu=self.alpha)

    def weigh(self, update: Update) -> float:
        if update.since != self.heard.get(update.client):
            raise ValueError(f"client {update.client} has lost its regulariser: let it enrol anew")
        return 1.0

    def note(self, update: Update) -> None:
        self.heard[update.client] = update.version

    def next_model(self, model: Tensor, closed: ClosedBuffer) -> Tensor:
        total = closed.total()
        self.drift = self.drift.add(total, alpha=1 / self.clients)
        return model.sub(total, alpha=1 / closed.count) - self.drift

    def down(self) -> Tensor:
        return torch.zeros_like(self.drift)
