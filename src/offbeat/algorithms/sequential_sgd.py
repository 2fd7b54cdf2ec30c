"""Sequential SGD: what federated learning would like to reach."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from offbeat.algorithms.base import Algorithm, LocalPlan, Payload, Update, check_update, resolve
from offbeat.algorithms.checks import check_client, check_count
from offbeat.algorithms.in_flight import InFlight
from offbeat.algorithms.lazy_model import LazyModel
from offbeat.algorithms.state import prefixed, under


class SequentialSGD(Algorithm):
    """No federation: one machine with all the data takes the local steps of a whole cohort, one after the other.

    A round is ``cohort`` · ``local.steps`` steps of SGD on everybody's examples together, βNC in the paper. The machine
    is as fast as the cohort's clients together, on average, so that it takes as long for a round as they for a
    visit without transfers. Nothing travels, and nobody is ever away.

    It is the reference curve of Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup under
    Intermittent Client Availability" (2020), section 6.

    Args:
        cohort: Clients whose steps a round is made of, m ≥ 1.

    Raises:
        ValueError: A hyper-parameter is out of range.
    """

    name = "sequential_sgd"
    payload: Payload = "params"
    wants_all = True
    linear = False
    pooled = True

    def __init__(self, *, cohort: int = 10) -> None:
        check_count("cohort", cohort)
        self.cohort = cohort

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        if clients != 1:
            raise ValueError(f"sequential SGD is for 1 client that holds all the data, got {clients} clients")
        self._model = LazyModel(model)
        self._version = 0
        self._in_flight = InFlight()

    @property
    def model(self) -> Tensor:
        return self._model.read()

    @property
    def version(self) -> int:
        return self._version

    def slots(self) -> int:
        return 1 - self._in_flight.slots_taken

    def assign(self, client: int, local: LocalPlan) -> LocalPlan:
        check_client(client, 1)
        if isinstance(local.lr, tuple) or local.compression is not None:
            raise ValueError("sequential SGD has one step size and sends nothing: give lr as a number, no compression")
        # The proximal term keeps a client near the others' model; here there are no others.
        plan = replace(local, steps=self.cohort * local.steps, mu=0.0)
        self._in_flight.add(client, self._version)
        return plan

    def wants(self, client: int, version: int) -> bool:
        return self._in_flight.holds(client, version)

    def receive(self, update: Update) -> bool:
        check_update(update, clients=1, version=self._version, length=self._model.length)
        if not self.wants(update.client, update.version):
            return False
        end = resolve(update.vector, self._model.length) if isinstance(update.vector, Tensor) else update.vector
        self._model.step(lambda model: resolve(end, len(model)))
        self._version += 1
        self._in_flight.remove(update.client)
        return True

    def drop(self, client: int, version: int) -> bool:
        self._in_flight.lapse(client, version)
        return False

    def state_dict(self) -> dict[str, Any]:
        return {
            "model": self.model.clone(),
            "version": self._version,
            **prefixed("in_flight", self._in_flight.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start(state["model"], 1)
        self._version = state["version"]
        self._in_flight.load_state_dict(under("in_flight", state))
