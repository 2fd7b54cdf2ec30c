"""Port: semi-asynchronous aggregation that does not let anybody fall too far behind."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.base import Algorithm, LocalPlan, Payload, Update, Vector, check_update, resolve
from offbeat.algorithms.checks import check_client, check_count, check_not_negative, check_positive
from offbeat.algorithms.in_flight import InFlight
from offbeat.algorithms.lazy_model import LazyModel
from offbeat.algorithms.server_optimizer import ServerOptimizer, ServerStep
from offbeat.algorithms.state import prefixed, under


class Port(Algorithm):
    """A server step as soon as enough updates are in and nobody at work is too stale.

    With t the version and v_i the one that client i works from, the server steps when ``min_clients`` updates are in
    and t − v_i ≤ B = ``staleness_bound`` for everybody at work: ``w_{t+1} = w_t − server_lr · Σ p_i Δ_i`` over all that
    is in, ``p_i ∝ n_i · (a · (cos(Δ_i, w_{v_i} − w_t) + 1)/2 + b · B/(τ_i + B))``, a = ``similarity_weight``,
    b = ``staleness_weight``, Σ p_i = 1. The cosine compares a client's update with how the model itself moved since
    the client's own version; it is 1 for a fresh update and 0 where one of the two is the zero vector. Somebody who
    is too stale is asked for what it has so far (Port-urgent), or waited for (Port-non-urgent).

    Su and Li, "How Asynchronous can Federated Learning Be?" (IWQoS 2022).

    Args:
        min_clients: Updates that a step needs, ≥ 1.
        staleness_bound: B ≥ 1, in versions.
        urgent_requests: Ask who is too stale for a partial update; else wait for it.
        similarity_weight: a ≥ 0.
        staleness_weight: b ≥ 0; not both 0.
        server_lr: Step size on the weighted mean of the deltas, > 0.
        concurrency: Clients at work at the same time, ≥ ``min_clients``.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Raises:
        ValueError: A hyper-parameter is out of range.
    """

    name = "port"
    payload: Payload = "delta"
    wants_all = True
    linear = False
    needs_base = True

    def __init__(
        self,
        *,
        min_clients: int = 5,
        staleness_bound: int = 10,
        urgent_requests: bool = True,
        similarity_weight: float = 1.0,
        staleness_weight: float = 1.0,
        server_lr: float = 1.0,
        concurrency: int = 10,
        server_optimizer: ServerOptimizer | None = None,
    ) -> None:
        check_count("min_clients", min_clients)
        check_count("staleness_bound", staleness_bound)
        check_not_negative("similarity_weight", similarity_weight)
        check_not_negative("staleness_weight", staleness_weight)
        if similarity_weight == staleness_weight == 0:
            raise ValueError("similarity_weight and staleness_weight are both 0: raise one of them")
        check_positive("server_lr", server_lr)
        check_count("concurrency", concurrency)
        if min_clients > concurrency:
            raise ValueError(f"min_clients must be at most concurrency, {concurrency}, got {min_clients}")
        self.min_clients = min_clients
        self.staleness_bound = staleness_bound
        self.urgent_requests = urgent_requests
        self.similarity_weight = similarity_weight
        self.staleness_weight = staleness_weight
        self.server_lr = server_lr
        self.concurrency = concurrency
        self.server_optimizer = server_optimizer

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        check_count("clients", clients)
        if self.min_clients > clients:
            raise ValueError(f"min_clients must be at most the number of clients, {clients}, got {self.min_clients}")
        self._model = LazyModel(model)
        self._step = ServerStep(self.server_optimizer, self.server_lr, self._model.length)
        self._clients = clients
        self._version = 0
        self._in: list[_Entry] = []
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
        if update.base is None:
            raise ValueError("Port compares an update with what its client started from: base is missing")
        base = resolve(update.base, self._model.length)
        self._in.append(_Entry(update.version, float(update.examples), update.vector, base))
        self._in_flight.remove(update.client)
        return self._step_if_due()

    def drop(self, client: int, version: int) -> bool:
        return self._in_flight.lapse(client, version) and self._step_if_due()

    def urgent(self) -> list[int]:
        return self._too_stale() if self.urgent_requests else []

    def _too_stale(self) -> list[int]:
        return self._in_flight.before(self._version - self.staleness_bound)

    def _step_if_due(self) -> bool:
        if len(self._in) < self.min_clients or self._too_stale():
            return False
        entries, version = self._in, self._version
        self._model.step(lambda model: self._step(model, self._weighted_mean(entries, model, version)))
        self._in = []
        self._version += 1
        return True

    def _weighted_mean(self, entries: "list[_Entry]", model: Tensor, version: int) -> Tensor:
        """Return Σ p_i Δ_i at the model w_t, t = ``version``."""
        deltas = [resolve(entry.delta, len(model)) for entry in entries]
        weights = [self._weight(entry, delta, model, version) for entry, delta in zip(entries, deltas, strict=True)]
        whole = sum(weights)
        if whole == 0:  # every update points exactly against the way the model went, and staleness does not count
            return torch.zeros_like(model)
        mean = torch.zeros_like(model)
        for delta, weight in zip(deltas, weights, strict=True):
            mean.add_(delta, alpha=weight / whole)
        return mean

    def _weight(self, entry: "_Entry", delta: Tensor, model: Tensor, version: int) -> float:
        staleness, bound = version - entry.version, self.staleness_bound
        cosine = 1.0 if staleness == 0 else _cosine(delta, entry.base - model)
        similarity = (cosine + 1) / 2
        return entry.examples * (
            self.similarity_weight * similarity + self.staleness_weight * bound / (staleness + bound)
        )

    def state_dict(self) -> dict[str, Any]:
        model, length = self.model.clone(), self._model.length
        deltas = [resolve(entry.delta, length) for entry in self._in]
        bases = [entry.base for entry in self._in]
        self._in = [replace(entry, delta=delta) for entry, delta in zip(self._in, deltas, strict=True)]
        return {
            "model": model,
            "clients": self._clients,
            "version": self._version,
            "versions": torch.tensor([entry.version for entry in self._in], dtype=torch.int64),
            "examples": torch.tensor([entry.examples for entry in self._in], dtype=torch.float64),
            "deltas": torch.stack(deltas) if deltas else torch.zeros(0, length),
            "bases": torch.stack(bases) if bases else torch.zeros(0, length),
            **prefixed("in_flight", self._in_flight.state_dict()),
            **prefixed("step", self._step.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start(state["model"], state["clients"])
        self._version = state["version"]
        columns = (state["versions"].tolist(), state["examples"].tolist(), state["deltas"], state["bases"])
        self._in = [
            _Entry(version, examples, delta.clone(), base.clone())
            for version, examples, delta, base in zip(*columns, strict=True)
        ]
        self._in_flight.load_state_dict(under("in_flight", state))
        self._step.load_state_dict(under("step", state))


@dataclass(frozen=True, slots=True)
class _Entry:
    """An update that waits for the next step."""

    version: int  # v_i
    examples: float  # n_i
    delta: Vector  # Δ_i
    base: Tensor  # w_{v_i}


def _cosine(one: Tensor, other: Tensor) -> float:
    """Return the cosine of the angle between two vectors; 0 if one of them is zero."""
    # In float64: squares of small float32 numbers vanish.
    first, second = one.to(torch.float64), other.to(torch.float64)
    norms = (first.norm() * second.norm()).item()
    return 0.0 if norms == 0 else min(1.0, max(-1.0, (first @ second).item() / norms))
