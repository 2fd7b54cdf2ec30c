"""FedAsync: every arrival is mixed into the model at once."""

from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.base import Algorithm, LocalPlan, Payload, Update, check_update, resolve
from offbeat.algorithms.checks import check_client, check_count
from offbeat.algorithms.in_flight import InFlight
from offbeat.algorithms.lazy_model import LazyModel
from offbeat.algorithms.staleness import Staleness, polynomial
from offbeat.algorithms.state import prefixed, under


class FedAsync(Algorithm):
    """Fully asynchronous: each client's end point is mixed into the model as it arrives.

    ``w_{t+1} = (1 − α_t) w_t + α_t w_i`` with ``α_t = mixing_alpha · s(τ)``, computed anew for each arrival.

    Xie, Koyejo and Gupta, "Asynchronous Federated Optimization" (2019), Algorithm 1. There the count of τ begins
    at 1; here a fresh update, τ = 0, counts in full.

    Args:
        mixing_alpha: α, 0 < α ≤ 1.
        staleness: The weight s(τ).
        concurrency: Clients at work at the same time, ≥ 1.

    Raises:
        ValueError: A hyper-parameter is out of range.
    """

    name = "fedasync"
    payload: Payload = "params"
    wants_all = True
    linear = False

    def __init__(self, *, mixing_alpha: float = 0.6, staleness: Staleness | None = None, concurrency: int = 10) -> None:
        if not 0 < mixing_alpha <= 1:
            raise ValueError(f"mixing_alpha must be in (0, 1], got {mixing_alpha}")
        check_count("concurrency", concurrency)
        self.mixing_alpha = mixing_alpha
        self.staleness = staleness or polynomial(a=0.5)
        self.concurrency = concurrency

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        check_count("clients", clients)
        self._model = LazyModel(model)
        self._clients = clients
        self._version = 0
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
        if local.compression is not None:
            raise ValueError("FedAsync uploads whole models, which cannot be compressed: leave compression out")
        self._in_flight.add(client, self._version)
        return local

    def wants(self, client: int, version: int) -> bool:
        return self._in_flight.holds(client, version)

    def receive(self, update: Update) -> bool:
        check_update(update, clients=self._clients, version=self._version, length=self._model.length)
        if not self.wants(update.client, update.version):
            return False
        alpha = self.mixing_alpha * self.staleness(self._version - update.version)
        end = resolve(update.vector, self._model.length) if isinstance(update.vector, Tensor) else update.vector
        self._model.step(lambda model: torch.lerp(model, resolve(end, len(model)), alpha))
        self._version += 1
        self._in_flight.remove(update.client)
        return True

    def drop(self, client: int, version: int) -> bool:
        self._in_flight.lapse(client, version)
        return False

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.clone(),
            "clients": self._clients,
            "version": self._version,
            **prefixed("in_flight", self._in_flight.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start(state["model"], state["clients"])
        self._version = state["version"]
        self._in_flight.load_state_dict(under("in_flight", state))
