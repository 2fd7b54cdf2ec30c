"""FedLaAvg: the average of every client's latest update, also of those that are away."""

from typing import Any, Literal

import torch
from torch import Tensor

from offbeat.algorithms.accumulator import RunningSum
from offbeat.algorithms.base import Algorithm, LocalPlan, Payload, Update, Vector, check_update, resolve
from offbeat.algorithms.checks import check_client, check_positive
from offbeat.algorithms.lazy_model import LazyModel
from offbeat.algorithms.round import Round, check_round
from offbeat.algorithms.server_optimizer import ServerOptimizer, ServerStep
from offbeat.algorithms.shares import check_weighting, client_shares
from offbeat.algorithms.state import prefixed, under

_NEVER = -1
_FORGOTTEN = "it has lost its memory; with server_keeps_updates the server could help it out"


class FedLaAvg(Algorithm):
    """Latest averaging: each client counts with its latest update for as long as it is away.

    Round r: of the clients that are there, the K = ``cohort`` that have been absent longest get x and upload what their
    update changed against their last counted one, u_i^r − u_i^{R_i}. With p_i the client's share of the objective, 1/N
    if all count the same, ``u ← u + Σ p_i (u_i^r − u_i^{R_i})``, ``R_i ← r`` and ``x ← x − server_lr · u``. So u is the
    weighted average of all N clients' latest updates, 0 for one that was never heard. The server holds u and N
    numbers, each client its own last update.

    A client that has lost its last update uploads the whole one, which counts only where the server has kept the
    last one for it.

    Yan et al., "Distributed Non-Convex Optimization with Sublinear Speedup under Intermittent Client Availability"
    (2020), Algorithm 1 for one local step, Algorithm 2 for C.

    Args:
        cohort: Clients a round, K = βN ≥ 1.
        server_lr: Step size on u, > 0.
        weighting: ``examples`` (p_i by the data weights that ``start`` is given) or ``uniform`` (1/N).
        server_keeps_updates: The server keeps every client's latest update, O(Nd), for clients that lose theirs.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Raises:
        ValueError: A hyper-parameter is out of range.
    """

    name = "fedlaavg"
    payload: Payload = "difference"
    selection = "longest_absent"

    def __init__(
        self,
        *,
        cohort: int = 100,
        server_lr: float = 1.0,
        weighting: Literal["examples", "uniform"] = "examples",
        server_keeps_updates: bool = False,
        server_optimizer: ServerOptimizer | None = None,
    ) -> None:
        check_round(cohort, 1.0)
        check_positive("server_lr", server_lr)
        check_weighting(weighting)
        self.cohort = cohort
        self.server_lr = server_lr
        self.weighting = weighting
        self.server_keeps_updates = server_keeps_updates
        self.server_optimizer = server_optimizer
        self.linear = not server_keeps_updates

    @property
    def weighs_all_clients(self) -> bool:
        return self.weighting == "examples"

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        opening = Round(0, self.cohort, 1.0, clients)
        shares = client_shares(clients, data_weights, self.weighting)
        self._model = LazyModel(model)
        self._step = ServerStep(self.server_optimizer, self.server_lr, self._model.length)
        self._clients = clients
        self._shares = shares
        self._version = 0
        # In float64, so that adding differences for ever does not add up rounding.
        self._average = torch.zeros(self._model.length, dtype=torch.float64)
        self._heard = [_NEVER] * clients  # the version of each client's last counted update
        self._kept: dict[int, Vector] = {}  # the clients' latest updates
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
        client = update.client
        if not self.wants(client, update.version):
            return False
        share, last = self._shares[client], self._last_of(client)
        has_forgotten = update.since != last
        if has_forgotten and not (self.server_keeps_updates and update.since is None):
            raise ValueError(
                f"client {client} sent a difference to {_name(update.since)}, but what last counted was {_name(last)}: "
                + ("let it send its whole update" if self.server_keeps_updates else _FORGOTTEN)
            )
        if self.server_keeps_updates:
            change = _Sum(self._model.length, update.vector)  # needed twice, resolved once
            self._changes.add(change, share)
            if has_forgotten:
                self._changes.add(self._kept[client], -share)
            self._keep(client, change, is_whole=update.since is None)
        else:
            self._changes.add(update.vector, share)
        self._heard[client] = update.version
        self._anyone = True
        return self._round.hear(client) and self._end_round()

    def drop(self, client: int, version: int) -> bool:
        return self._round.lose(client, version) and self._end_round()

    def tick(self) -> bool:
        """End a round that has begun with what is in, since nobody else is to be had; return whether there is one."""
        return self._round.begun and self._end_round()

    def _last_of(self, client: int) -> int | None:
        return None if self._heard[client] == _NEVER else self._heard[client]

    def _keep(self, client: int, change: "_Sum", is_whole: bool) -> None:
        latest = change if is_whole else _Sum(self._model.length, self._kept[client], change)
        self._kept[client] = latest
        self._new.append(latest)

    def _open(self, opening: Round) -> None:
        self._round = opening
        self._changes = RunningSum(self._model.length)
        self._new: list[_Sum] = []  # the latest updates of those heard in this round
        self._anyone = False

    def _end_round(self) -> bool:
        anyone, changes, new = self._anyone, self._changes, self._new
        if anyone:
            self._model.step(lambda model: self._take_step(model, changes, new))
            self._version += 1
        self._open(self._round.next())
        return anyone

    def _take_step(self, model: Tensor, changes: RunningSum, new: "list[_Sum]") -> Tensor:
        total = changes.total()
        for latest in new:
            latest.resolve()  # now that all it is made of is there, so that sums of sums do not grow for ever
        self._average += total
        return self._step(model, self._average.float())

    def state_dict(self) -> dict[str, Any]:
        clients = sorted(self._kept)
        length = self._model.length
        kept = [resolve(self._kept[client], length) for client in clients]
        return {
            "model": self.model.clone(),  # first: it carries out the steps that move the average
            "clients": self._clients,
            "version": self._version,
            "anyone": self._anyone,
            "average": self._average.clone(),
            "shares": torch.tensor(self._shares, dtype=torch.float64),
            "heard": torch.tensor(self._heard, dtype=torch.int64),
            "kept": torch.stack(kept) if kept else torch.zeros(0, length),
            "kept_of": torch.tensor(clients, dtype=torch.int64),
            **prefixed("changes", self._changes.state_dict()),
            **prefixed("round", self._round.state_dict()),
            **prefixed("step", self._step.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start(state["model"], state["clients"])
        self._shares = state["shares"].tolist()
        self._version = state["version"]
        self._anyone = state["anyone"]
        self._average = state["average"].clone()
        self._heard = state["heard"].tolist()
        self._kept = dict(zip(state["kept_of"].tolist(), state["kept"].clone().unbind(), strict=True))
        self._changes.load_state_dict(under("changes", state))
        self._round.load_state_dict(under("round", state))
        self._step.load_state_dict(under("step", state))


class _Sum:
    """The promise of a sum of vectors ``(d,)``; each of them is resolved once and then forgotten."""

    def __init__(self, length: int, *parts: Vector) -> None:
        self._length = length
        self._parts = parts

    def resolve(self) -> Tensor:
        """Return the sum."""
        first, *others = (resolve(part, self._length) for part in self._parts)
        total = sum(others, start=first)
        self._parts = (total,)
        return total


def _name(version: int | None) -> str:
    return "nothing" if version is None else f"its update from version {version}"
