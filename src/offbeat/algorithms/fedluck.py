"""FedLuck: periodic aggregation, each client with the local steps and the compression that suit it."""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from offbeat.algorithms.accumulator import RunningSum
from offbeat.algorithms.base import Algorithm, Compression, LocalPlan, Payload, Update, check_update
from offbeat.algorithms.checks import check_client, check_count, check_not_negative, check_positive
from offbeat.algorithms.fedluck_choice import best_steps_and_compression, check_exponent, check_ranges
from offbeat.algorithms.in_flight import InFlight
from offbeat.algorithms.lazy_model import LazyModel
from offbeat.algorithms.server_optimizer import ServerOptimizer, ServerStep
from offbeat.algorithms.state import prefixed, under

# Simulated clients are measured alike at each visit, and many of them are alike.
_best = lru_cache(maxsize=4096)(best_steps_and_compression)


class FedLuck(Algorithm):
    """Every T̃ seconds what has arrived is averaged; each client has its own number of steps and its own compression.

    ``w_{t+1} = w_t − server_lr · mean_{i ∈ S_t} C(Δ_i)`` every ``period`` T̃, S_t being whose updates came in it; if
    nobody's did, nothing changes and there is no new version. Those in S_t then begin anew. A visit of client i takes
    ``k_i α_i + δ_i β_i`` seconds, with α_i a step's and β_i an uncompressed upload's, both measured at its last visit;
    its next one gets the (k_i, δ_i) that minimise ``φ(k, δ) = ((kα + δβ)²(2 − δ) + 1)/(k δ^e)``, α and β in units of
    T̃ and e = ``compression_exponent``: ½ in the authors' code, 1 in the paper's appendix.
    A client's first visit, of which nothing is known, takes the run's steps, as far as ``steps`` allows, and sends the
    largest share.

    With ``normalise`` clients count as FedNova's do, whatever number of steps each was given: each C(Δ_i) is divided by
    its a_i and the mean multiplied by the mean a_i.

    The rule and φ: "Theory for FedLuck" (the paper's appendix), sections 1 and 2; there one choice serves all clients,
    by the slowest. A choice for each client, and e = ½, are from the authors' code (``Aegsteh-T/FedLuck_Euro_Par`` on
    GitHub).

    Args:
        period: T̃, seconds, > 0.
        server_lr: Step size on the mean, > 0.
        steps: Smallest and largest k.
        compression: Smallest and largest δ, the share of entries that top-k sends, in (0, 1].
        compression_exponent: e, the power of δ in φ, in (0, 2]; a smaller one compresses more.
        normalise: Divide each update by its a_i.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Raises:
        ValueError: A hyper-parameter is out of range.
    """

    name = "fedluck"
    payload: Payload = "delta"
    wants_all = True
    measures = True

    def __init__(
        self,
        *,
        period: float = 1.0,
        server_lr: float = 1.0,
        steps: tuple[int, int] = (1, 50),
        compression: tuple[float, float] = (0.01, 1.0),
        compression_exponent: float = 0.5,
        normalise: bool = False,
        server_optimizer: ServerOptimizer | None = None,
    ) -> None:
        check_positive("period", period)
        check_positive("server_lr", server_lr)
        check_ranges(steps, compression)
        check_exponent(compression_exponent)
        self.period = period
        self.server_lr = server_lr
        self.steps = steps
        self.compression = compression
        self.compression_exponent = compression_exponent
        self.normalise = normalise
        self.server_optimizer = server_optimizer

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        check_count("clients", clients)
        self._model = LazyModel(model)
        self._step = ServerStep(self.server_optimizer, self.server_lr, self._model.length)
        self._clients = clients
        self._version = 0
        self._periods = 0
        self._open_period()
        self._measured: dict[int, tuple[float, float]] = {}  # α_i and β_i
        self._in_flight = InFlight()

    @property
    def model(self) -> Tensor:
        return self._model.read()

    @property
    def version(self) -> int:
        return self._version

    @property
    def round(self) -> int:
        return self._periods

    def slots(self) -> int:
        return self._clients - self._in_flight.slots_taken - len(self._arrived)

    def assign(self, client: int, local: LocalPlan) -> LocalPlan:
        check_client(client, self._clients)
        if client in self._arrived:
            raise ValueError(f"client {client} cannot be assigned: it was heard in this period")
        if isinstance(local.lr, tuple):
            raise ValueError("FedLuck chooses the number of steps: give local.lr as one number")
        if local.compression is not None and local.compression.name != "top_k":
            raise ValueError(
                f"FedLuck chooses how much top_k keeps: leave local.compression {local.compression.name} out"
            )
        steps, share = self._choice(client, local)
        whole = share == 1 and not local.error_feedback  # smaller without indices
        plan = replace(local, steps=steps, compression=None if whole else Compression("top_k", (("share", share),)))
        self._in_flight.add(client, self._version)
        return plan

    def _choice(self, client: int, local: LocalPlan) -> tuple[int, float]:
        """Return the client's k_i and δ_i."""
        assert self.period is not None
        smallest, largest = self.steps
        if client not in self._measured:
            return min(max(local.steps, smallest), largest), self.compression[1]
        ranges = tuple(self.steps), tuple(self.compression)
        return _best(*self._measured[client], self.period, *ranges, self.compression_exponent)

    def wants(self, client: int, version: int) -> bool:
        return self._in_flight.holds(client, version)

    def receive(self, update: Update) -> bool:
        check_update(update, clients=self._clients, version=self._version, length=self._model.length)
        if not self.wants(update.client, update.version):
            return False
        measured = update.step_seconds, update.upload_seconds
        for name, seconds in zip(("step_seconds", "upload_seconds"), measured, strict=True):
            if seconds is not None:
                check_not_negative(name, seconds)
        a = float(update.normaliser) if self.normalise else 1.0
        if a > 0:
            check_not_negative("1 / normaliser", 1 / a)
            self._sum.add(update.vector, 1 / a)
            self._moved += 1
            self._sum_a += a
        if measured[0] is not None and measured[1] is not None:
            self._measured[update.client] = (measured[0], measured[1])
        self._arrived.add(update.client)
        self._in_flight.remove(update.client)
        return False

    def drop(self, client: int, version: int) -> bool:
        self._in_flight.lapse(client, version)
        return False

    def tick(self) -> bool:
        self._periods += 1
        moved, total, sum_a = self._moved, self._sum, self._sum_a
        self._open_period()
        if not moved:
            return False
        # The mean of all C(Δ_i) / a_i times the mean a_i.
        self._model.step(lambda model: self._step(model, total.mean(moved * (moved / sum_a))))
        self._version += 1
        return True

    def _open_period(self) -> None:
        self._arrived: set[int] = set()  # S_t
        self._sum = RunningSum(self._model.length)  # Σ C(Δ_i) / a_i, a_i = 1 unless normalising
        self._moved = 0  # how many of S_t took a step: the others have no direction
        self._sum_a = 0.0  # their Σ a_i

    def state_dict(self) -> dict[str, Any]:
        measured = list(self._measured.items())
        return {
            "model": self.model.clone(),
            "clients": self._clients,
            "version": self._version,
            "periods": self._periods,
            "moved": self._moved,
            "sum_a": self._sum_a,
            "arrived": torch.tensor(sorted(self._arrived), dtype=torch.int64),
            "measured": torch.tensor([pair for _, pair in measured], dtype=torch.float64).reshape(-1, 2),
            "measured_of": torch.tensor([client for client, _ in measured], dtype=torch.int64),
            **prefixed("sum", self._sum.state_dict()),
            **prefixed("in_flight", self._in_flight.state_dict()),
            **prefixed("step", self._step.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start(state["model"], state["clients"])
        self._version = state["version"]
        self._periods = state["periods"]
        self._moved = state["moved"]
        self._sum_a = state["sum_a"]
        self._arrived = set(state["arrived"].tolist())
        pairs = [(pair[0], pair[1]) for pair in state["measured"].tolist()]
        self._measured = dict(zip(state["measured_of"].tolist(), pairs, strict=True))
        self._sum.load_state_dict(under("sum", state))
        self._in_flight.load_state_dict(under("in_flight", state))
        self._step.load_state_dict(under("step", state))
