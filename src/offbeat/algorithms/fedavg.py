"""FedAvg: a round of clients, averaged."""

from typing import Any, Literal

from torch import Tensor

from offbeat.algorithms.accumulator import RunningSum
from offbeat.algorithms.base import Algorithm, LocalPlan, Payload, Update, check_update
from offbeat.algorithms.checks import check_client, check_positive
from offbeat.algorithms.lazy_model import LazyModel
from offbeat.algorithms.round import Round, check_round
from offbeat.algorithms.server_optimizer import ServerOptimizer, ServerStep
from offbeat.algorithms.shares import check_weighting
from offbeat.algorithms.state import prefixed, under


class FedAvg(Algorithm):
    """Synchronous rounds: a cohort of clients works from one model, and their updates are averaged.

    ``w_{t+1} = w_t − server_lr · Σ p_i Δ_i`` over the first m = ``cohort`` clients that hand in, with
    ``p_i = n_i / Σ n`` or uniform. With over-selection r, ``ceil(m · r)`` clients are asked and what comes after
    the first m is not wanted. A client that is lost is not replaced; the round ends when everybody asked was heard or
    lost, and at a ``tick``, its deadline, with those that were heard. If all were lost there is no new version and a
    new round begins.

    FedSGD is FedAvg with one local step; FedProx is FedAvg with a local ``mu`` > 0.

    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data" (AISTATS 2017),
    Algorithm 1; over-selection: Bonawitz et al., "Towards Federated Learning at Scale" (MLSys 2019).

    Args:
        cohort: Updates a round, m ≥ 1.
        server_lr: Step size on the averaged delta, > 0.
        weighting: ``examples`` (p_i ∝ n_i) or ``uniform``.
        over_selection: r, 1 ≤ r ≤ 1000; 1.3 asks 30 % more clients than are waited for.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Raises:
        ValueError: A hyper-parameter is out of range.
    """

    name = "fedavg"
    payload: Payload = "delta"

    def __init__(
        self,
        *,
        cohort: int = 10,
        server_lr: float = 1.0,
        weighting: Literal["examples", "uniform"] = "examples",
        over_selection: float = 1.0,
        server_optimizer: ServerOptimizer | None = None,
    ) -> None:
        check_round(cohort, over_selection)
        check_positive("server_lr", server_lr)
        check_weighting(weighting)
        self.cohort = cohort
        self.server_lr = server_lr
        self.weighting = weighting
        self.over_selection = over_selection
        self.server_optimizer = server_optimizer

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        opening = Round(0, self.cohort, self.over_selection, clients)
        self._model = LazyModel(model)
        self._step = ServerStep(self.server_optimizer, self.server_lr, self._model.length)
        self._clients = clients
        self._version = 0
        self._open(opening)

    @property
    def model(self) -> Tensor:
        return self._model.read()

    @property
    def version(self) -> int:
        return self._version

    @property
    def round(self) -> int:
        return self._round.number

    def slots(self) -> int:
        return self._round.slots()

    def assign(self, client: int, local: LocalPlan) -> LocalPlan:
        check_client(client, self._clients)
        self._round.assign(client, self._version)
        return local

    def wants(self, client: int, version: int) -> bool:
        return self._round.wants(client, version)

    def receive(self, update: Update) -> bool:
        check_update(update, clients=self._clients, version=self._version, length=self._model.length)
        if not self.wants(update.client, update.version):
            return False
        weight = float(update.examples) if self.weighting == "examples" else 1.0
        self._sum.add(update.vector, weight)
        self._weight += weight
        return self._round.hear(update.client) and self._end_round()

    def drop(self, client: int, version: int) -> bool:
        return self._round.lose(client, version) and self._end_round()

    def tick(self) -> bool:
        """End a round that has begun with what is in, since nobody else is to be had; return whether there is one."""
        return self._round.begun and self._end_round()

    def _open(self, opening: Round) -> None:
        self._round = opening
        self._sum = RunningSum(self._model.length)
        self._weight = 0.0

    def _end_round(self) -> bool:
        total, weight = self._sum, self._weight
        if weight > 0:
            self._model.step(lambda model: self._step(model, total.mean(weight)))
            self._version += 1
        self._open(self._round.next())
        return weight > 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.clone(),
            "clients": self._clients,
            "version": self._version,
            "weight": self._weight,
            **prefixed("sum", self._sum.state_dict()),
            **prefixed("round", self._round.state_dict()),
            **prefixed("step", self._step.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start(state["model"], state["clients"])
        self._version = state["version"]
        self._weight = state["weight"]
        self._sum.load_state_dict(under("sum", state))
        self._round.load_state_dict(under("round", state))
        self._step.load_state_dict(under("step", state))
