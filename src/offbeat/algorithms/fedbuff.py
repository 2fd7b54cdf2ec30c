"""FedBuff: asynchronous clients, a server step for every K updates."""

from typing import Any

from torch import Tensor

from offbeat.algorithms.accumulator import RunningSum
from offbeat.algorithms.base import Algorithm, LocalPlan, Payload, Update, check_update
from offbeat.algorithms.checks import check_client, check_count, check_positive
from offbeat.algorithms.in_flight import InFlight
from offbeat.algorithms.lazy_model import LazyModel
from offbeat.algorithms.server_optimizer import ServerOptimizer, ServerStep
from offbeat.algorithms.staleness import Staleness, polynomial
from offbeat.algorithms.state import prefixed, under


class FedBuff(Algorithm):
    """Buffered asynchronous aggregation: clients come and go, every K-th update makes a new model.

    ``acc ← acc + s(τ_i) Δ_i`` for each arrival; at the K-th ``w_{t+1} = w_t − server_lr · acc / K``, and the
    buffer is empty again. The server holds one accumulator, whatever K. K = 1 and s = 1 is plain asynchronous SGD.

    Nguyen et al., "Federated Learning with Buffered Asynchronous Aggregation" (AISTATS 2022), Algorithm 1; analysed
    for s = 1 and the server step size β = server_lr / K by Toghani and Uribe, "Unbounded Gradients in Federated
    Learning with Buffered Asynchronous Aggregation" (2022), Algorithms 1 and 2.

    Args:
        buffer_size: K ≥ 1.
        server_lr: Step size on the averaged delta, > 0.
        staleness: The weight s(τ).
        concurrency: Clients at work at the same time, ≥ 1.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Raises:
        ValueError: A hyper-parameter is out of range.
    """

    name = "fedbuff"
    payload: Payload = "delta"
    wants_all = True

    def __init__(
        self,
        *,
        buffer_size: int = 10,
        server_lr: float = 1.0,
        staleness: Staleness | None = None,
        concurrency: int = 100,
        server_optimizer: ServerOptimizer | None = None,
    ) -> None:
        check_count("buffer_size", buffer_size)
        check_positive("server_lr", server_lr)
        check_count("concurrency", concurrency)
        self.buffer_size = buffer_size
        self.server_lr = server_lr
        self.staleness = staleness or polynomial(a=0.5)
        self.concurrency = concurrency
        self.server_optimizer = server_optimizer

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        check_count("clients", clients)
        self._model = LazyModel(model)
        self._step = ServerStep(self.server_optimizer, self.server_lr, self._model.length)
        self._clients = clients
        self._version = 0
        self._buffer = RunningSum(self._model.length)
        self._buffered = 0
        self._in_flight = InFlight()

    @property
    def model(self) -> Tensor:
        return self._model.read()

    @property
    def version(self) -> int:
        return self._version

    def slots(self) -> int:
        return min(self.concurrency, self._clients) - self._in_flight.slots_taken

    def assign(self, client: int, local: LocalPlan) -> LocalPlan:
        check_client(client, self._clients)
        self._in_flight.add(client, self._version)
        return local

    def wants(self, client: int, version: int) -> bool:
        return self._in_flight.holds(client, version)

    def receive(self, update: Update) -> bool:
        check_update(update, clients=self._clients, version=self._version, length=self._model.length)
        if not self.wants(update.client, update.version):
            return False
        self._buffer.add(update.vector, self.staleness(self._version - update.version))
        self._buffered += 1
        self._in_flight.remove(update.client)
        if self._buffered < self.buffer_size:
            return False
        full = self._buffer
        self._model.step(lambda model: self._step(model, full.mean(self.buffer_size)))
        self._version += 1
        self._buffer = RunningSum(self._model.length)
        self._buffered = 0
        return True

    def drop(self, client: int, version: int) -> bool:
        self._in_flight.lapse(client, version)
        return False

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.clone(),
            "clients": self._clients,
            "version": self._version,
            "buffered": self._buffered,
            **prefixed("buffer", self._buffer.state_dict()),
            **prefixed("in_flight", self._in_flight.state_dict()),
            **prefixed("step", self._step.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start(state["model"], state["clients"])
        self._version = state["version"]
        self._buffered = state["buffered"]
        self._buffer.load_state_dict(under("buffer", state))
        self._in_flight.load_state_dict(under("in_flight", state))
        self._step.load_state_dict(under("step", state))
