"""FedFa: asynchronous clients, a server step for every update, from a sliding window of the last K."""

import math
from collections import deque
from typing import Any, Literal

import torch
from torch import Tensor

from offbeat.algorithms.base import Algorithm, LocalPlan, Payload, Update, Vector, check_update
from offbeat.algorithms.checks import check_client, check_count, check_not_negative, check_positive
from offbeat.algorithms.in_flight import InFlight
from offbeat.algorithms.lazy_model import LazyModel
from offbeat.algorithms.server_optimizer import ServerOptimizer, ServerStep
from offbeat.algorithms.state import prefixed, under
from offbeat.algorithms.window_sum import WindowSum


class FedFa(Algorithm):
    """Fully asynchronous: each update makes a new model, from it and the K − 1 updates before it.

    A window holds the last K uploads; the oldest goes as a new one comes. Until K have arrived the model stays w_0;
    the K-th makes the first version and every r-th after it, r = ``release_every``, the next:

    - delta, eq. (4): ``w_{t+1} = w_t − (server_lr / K) · Σ Δ_j`` over the window;
    - params, eq. (3): ``w_{t+1} = (1 / K) · Σ w_j`` over the window.

    With r = 1 each delta counts in K successive versions, ``server_lr`` in all; FedBuff's counts once,
    ``server_lr / K``. Compare the two at equal total step, and count uploads, not versions. r = K is FedBuff, and
    K = 1 plain asynchronous SGD, both with s = 1.

    With ``normalise`` clients count as FedNova's do: each delta is divided by its a_j and the sum multiplied by the
    window's mean a_j (Table 6; the paper found the pair unstable). A client that was cut short before its first
    step, a_j = 0, has no direction: its slot is free again, and it does not enter the window.

    Privacy: two consecutive sums of deltas differ by one that came and one that went, so whoever sees every version
    learns ``Δ_in − Δ_out``. A sum over K clients hides less here than in FedBuff.

    Xu et al., "FedFa: A Fully Asynchronous Training Paradigm for Federated Learning" (IJCAI 2024), section 3.1,
    equations (3) and (4).

    Args:
        window: K ≥ 1.
        transmit: ``delta`` or ``params``, what clients upload.
        server_lr: Step size on the averaged delta, > 0; 1 for params, which take no step.
        release_every: r, 1 ≤ r ≤ K, for an update that left the window between two versions would count in none.
        concurrency: Clients at work at the same time, ≥ 1.
        normalise: Divide each delta by its a_j; for deltas only.
        server_optimizer: Takes the step instead of plain subtraction; None for plain. For deltas only.

    Raises:
        ValueError: A hyper-parameter is out of range, or does not go with params.
    """

    name = "fedfa"
    wants_all = True

    def __init__(
        self,
        *,
        window: int = 5,
        transmit: Literal["delta", "params"] = "delta",
        server_lr: float = 1.0,
        release_every: int = 1,
        concurrency: int = 10,
        normalise: bool = False,
        server_optimizer: ServerOptimizer | None = None,
    ) -> None:
        check_count("window", window)
        if transmit not in ("delta", "params"):
            raise ValueError(f"transmit must be 'delta' or 'params', got {transmit!r}")
        check_positive("server_lr", server_lr)
        check_count("release_every", release_every)
        if release_every > window:
            raise ValueError(f"release_every must be at most the window, {window}, got {release_every}")
        check_count("concurrency", concurrency)
        if transmit == "params" and (server_lr != 1 or normalise or server_optimizer is not None):
            raise ValueError("server_lr, normalise and server_optimizer are for transmit = 'delta': leave them out")
        self.window = window
        self.transmit = transmit
        self.server_lr = server_lr
        self.release_every = release_every
        self.concurrency = concurrency
        self.normalise = normalise
        self.server_optimizer = server_optimizer
        self.payload: Payload = transmit
        self.linear = transmit == "delta"

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        check_count("clients", clients)
        self._model = LazyModel(model)
        self._step = ServerStep(self.server_optimizer, self.server_lr, self._model.length)
        self._clients = clients
        self._version = 0
        self._sum = WindowSum(self._model.length)
        self._arrived: list[tuple[Vector, float]] = []  # since the last version, and not yet in the window
        self._window_a: deque[float] = deque(maxlen=self.window)
        self._until_release = self.window
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
        if self.transmit == "params" and local.compression is not None:
            raise ValueError("FedFa of params uploads whole models, which cannot be compressed: leave compression out")
        self._in_flight.add(client, self._version)
        return local

    def wants(self, client: int, version: int) -> bool:
        return self._in_flight.holds(client, version)

    def receive(self, update: Update) -> bool:
        check_update(update, clients=self._clients, version=self._version, length=self._model.length)
        if not self.wants(update.client, update.version):
            return False
        a = float(update.normaliser) if self.normalise else 1.0
        if a > 0:
            check_not_negative("1 / normaliser", 1 / a)
        self._in_flight.remove(update.client)
        return a > 0 and self._arrive(update.vector, a)

    def drop(self, client: int, version: int) -> bool:
        self._in_flight.lapse(client, version)
        return False

    def _arrive(self, vector: Vector, a: float) -> bool:
        """Note that Δ_j or w_j came; return whether a step is due, which is taken when the model is read."""
        self._arrived.append((vector, 1 / a))
        self._window_a.append(a)
        self._until_release -= 1
        if self._until_release > 0:
            return False
        arrived, mean_a = self._arrived, math.fsum(self._window_a) / self.window
        self._model.step(lambda model: self._next(model, arrived, mean_a))
        self._version += 1
        self._arrived = []
        self._until_release = self.release_every
        return True

    def _next(self, model: Tensor, arrived: list[tuple[Vector, float]], mean_a: float) -> Tensor:
        self._slide(arrived)
        mean = self._sum.total() / (self.window / mean_a)
        return mean if self.transmit == "params" else self._step(model, mean)

    def _slide(self, arrived: list[tuple[Vector, float]]) -> None:
        """Move what arrived into the window, and as much out of it."""
        while arrived:
            if len(self._sum) == self.window:
                self._sum.remove()
            self._sum.add(*arrived[0])
            del arrived[0]

    def state_dict(self) -> dict[str, Any]:
        model = self.model.clone()
        self._slide(self._arrived)
        return {
            "model": model,
            "clients": self._clients,
            "version": self._version,
            "until_release": self._until_release,
            "window_a": torch.tensor(list(self._window_a), dtype=torch.float64),
            **prefixed("sum", self._sum.state_dict()),
            **prefixed("in_flight", self._in_flight.state_dict()),
            **prefixed("step", self._step.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start(state["model"], state["clients"])
        self._version = state["version"]
        self._until_release = state["until_release"]
        self._window_a.extend(state["window_a"].tolist())
        self._sum.load_state_dict(under("sum", state))
        self._in_flight.load_state_dict(under("in_flight", state))
        self._step.load_state_dict(under("step", state))
