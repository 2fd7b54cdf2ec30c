"""FedNova: a round of clients, averaged by direction, whatever number of steps each of them took."""

from typing import Any

from torch import Tensor

from offbeat.algorithms.accumulator import RunningSum
from offbeat.algorithms.base import Algorithm, LocalPlan, Payload, Update, check_update
from offbeat.algorithms.checks import check_client, check_not_negative, check_positive
from offbeat.algorithms.lazy_model import LazyModel
from offbeat.algorithms.round import Round, check_round
from offbeat.algorithms.server_optimizer import ServerOptimizer, ServerStep
from offbeat.algorithms.state import prefixed, under


class FedNova(Algorithm):
    """Synchronous rounds like FedAvg's, in which a client that took more steps does not count for more.

    ``w_{t+1} = w_t − server_lr · (Σ p_i a_i) · Σ p_i Δ_i / a_i``, ``p_i = n_i / Σ n``: the clients' directions
    Δ_i / a_i are averaged, and the model goes as far along their mean as the clients went on average. With equal a_i
    this is FedAvg. Rounds begin and end as FedAvg's do, over-selection included.

    A client that was cut short before its first step, a_i = 0, has no direction. It fills its place in the round, but
    it is left out of all three sums; a round in which nobody has a direction makes no version.

    Wang, Liu, Liang, Joshi and Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
    Optimization" (NeurIPS 2020).

    Args:
        cohort: Updates a round, m ≥ 1.
        server_lr: Step size on the averaged delta, > 0.
        over_selection: r, 1 ≤ r ≤ 1000; 1.3 asks 30 % more clients than are waited for.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Raises:
        ValueError: A hyper-parameter is out of range.
    """

    name = "fednova"
    payload: Payload = "delta"

    def __init__(
        self,
        *,
        cohort: int = 10,
        server_lr: float = 1.0,
        over_selection: float = 1.0,
        server_optimizer: ServerOptimizer | None = None,
    ) -> None:
        check_round(cohort, over_selection)
        check_positive("server_lr", server_lr)
        self.cohort = cohort
        self.server_lr = server_lr
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
        n, a = int(update.examples), float(update.normaliser)
        if a > 0:
            check_not_negative("examples / normaliser", n / a)
            self._directions.add(update.vector, n / a)
            self._examples += n
            self._examples_times_a += n * a
        return self._round.hear(update.client) and self._end_round()

    def drop(self, client: int, version: int) -> bool:
        return self._round.lose(client, version) and self._end_round()

    def tick(self) -> bool:
        """End a round that has begun with what is in, since nobody else is to be had; return whether there is one."""
        return self._round.begun and self._end_round()

    def _open(self, opening: Round) -> None:
        self._round = opening
        self._directions = RunningSum(self._model.length)  # Σ n_i Δ_i / a_i
        self._examples = 0  # Σ n_i
        self._examples_times_a = 0.0  # Σ n_i a_i

    def _end_round(self) -> bool:
        directions, examples = self._directions, self._examples
        if examples > 0:
            mean_a = self._examples_times_a / examples
            self._model.step(lambda model: self._step(model, directions.mean(examples / mean_a)))
            self._version += 1
        self._open(self._round.next())
        return examples > 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.clone(),
            "clients": self._clients,
            "version": self._version,
            "examples": self._examples,
            "examples_times_a": self._examples_times_a,
            **prefixed("directions", self._directions.state_dict()),
            **prefixed("round", self._round.state_dict()),
            **prefixed("step", self._step.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start(state["model"], state["clients"])
        self._version = state["version"]
        self._examples = state["examples"]
        self._examples_times_a = state["examples_times_a"]
        self._directions.load_state_dict(under("directions", state))
        self._round.load_state_dict(under("round", state))
        self._step.load_state_dict(under("step", state))
