"""AsyncCommSGD: local SGD for ever, under any pattern of who talks to the server when."""

from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from offbeat.algorithms.accumulator import RunningSum
from offbeat.algorithms.base import Algorithm, LocalPlan, Payload, Update, check_update
from offbeat.algorithms.checks import check_client, check_count, check_positive
from offbeat.algorithms.in_flight import InFlight
from offbeat.algorithms.lazy_model import LazyModel
from offbeat.algorithms.patterns import Pattern, round_robin
from offbeat.algorithms.server_optimizer import ServerOptimizer, ServerStep
from offbeat.algorithms.shares import check_weighting, client_shares
from offbeat.algorithms.state import prefixed, under
from offbeat.algorithms.step_sizes import StepSizes


class AsyncCommSGD(Algorithm):
    """Everybody works all the time; what a client has done since it last talked counts when it talks again.

    In round t every client i takes a step from its own point x_i; those in C_{t+1} then upload Δ_i, how far they
    came since they last talked, and go on from ``x_{t+1} = x_t − server_lr · Σ_{i ∈ C_{t+1}} p_i Δ_i`` with p_i the
    client's share of the objective, 1/N if all count the same: the sum is over those who talk, but the shares are of
    all N. So a visit runs from one round of the client's to its next, and needs no memory.

    A round lasts ``period`` seconds, and a client's step of a round is ``local.steps`` minibatch steps. An update that
    comes before its round waits for it, one that comes after it counts in the next: choose the period such that a
    round's steps and the transfers fit in.

    Avdyukhin and Kasiviswanathan, "Federated Learning under Arbitrary Communication Patterns" (ICML 2021), Algorithm 1;
    the averaged iterate is that of Theorem 2.2.

    Args:
        pattern: Who talks when.
        step_sizes: γ_t, one for each round; None takes the run's ``lr``.
        average: Whether ``result`` is ``Σ w_t x_t / Σ w_t`` with ``w_t = (Δ + t)²``, Δ the pattern's longest gap.
        period: Seconds a round, > 0.
        weighting: ``examples`` (p_i by the data weights that ``start`` is given) or ``uniform`` (the paper's 1/N).
        server_lr: Step size on the average, > 0; the paper's is 1.
        server_optimizer: Takes the step instead of plain subtraction; None for plain.

    Raises:
        ValueError: A hyper-parameter is out of range.
    """

    name = "async_comm_sgd"
    payload: Payload = "delta"

    def __init__(
        self,
        *,
        pattern: Pattern | None = None,
        step_sizes: StepSizes | None = None,
        average: bool = False,
        period: float = 1.0,
        weighting: Literal["examples", "uniform"] = "examples",
        server_lr: float = 1.0,
        server_optimizer: ServerOptimizer | None = None,
    ) -> None:
        check_positive("period", period)
        check_weighting(weighting)
        check_positive("server_lr", server_lr)
        self.pattern = pattern or round_robin(k=2, every=1)
        self.step_sizes = step_sizes
        self.average = average
        self.period = period
        self.weighting = weighting
        self.server_lr = server_lr
        self.server_optimizer = server_optimizer

    @property
    def weighs_all_clients(self) -> bool:
        return self.weighting == "examples"

    def start(self, model: Tensor, clients: int, data_weights: Tensor | None = None) -> None:
        check_count("clients", clients)
        shares = client_shares(clients, data_weights, self.weighting)
        self._model = LazyModel(model)
        self._step = ServerStep(self.server_optimizer, self.server_lr, self._model.length)
        self._clients = clients
        self._shares = shares
        self._gap = self.pattern.longest_gap(clients)
        self._round = 0
        self._due: dict[int, int] = {}  # the round in which each client that is at work talks
        self._resting: dict[int, int] = {}  # the round in which the update of each client that is back counts
        self._returning: dict[int, list[int]] = {}  # the same, by round
        self._in_flight = InFlight()
        self._waiting: dict[int, RunningSum] = {}  # what has come, by the round in which it counts
        # The iterates' weighted sum, in float64 since it is of thousands of terms.
        self._weighted = self._weight(0) * self._model.read().to(torch.float64) if self.average else torch.zeros(0)
        self._weights = self._weight(0)

    @property
    def model(self) -> Tensor:
        return self._model.read()

    @property
    def result(self) -> Tensor:
        if not self.average:
            return self.model
        self._model.read()  # takes the steps that add to the sum
        return (self._weighted / self._weights).float()

    @property
    def version(self) -> int:
        return self._round

    @property
    def round(self) -> int:
        return self._round

    def slots(self) -> int:
        # Everybody works who is not waiting for the round in which what it brought counts.
        return self._clients - self._in_flight.slots_taken - len(self._resting)

    def returns_in(self, client: int) -> int:
        return self._resting.get(client, self._round)

    def assign(self, client: int, local: LocalPlan) -> LocalPlan:
        check_client(client, self._clients)
        if isinstance(local.lr, tuple):
            raise ValueError("the step sizes of AsyncCommSGD come from step_sizes: give local.lr as one number")
        if client in self._resting:
            raise ValueError(f"client {client} cannot be assigned: it is back before the round in which it talks")
        talks = self.pattern.next_round(client, self._round, self._clients)
        rounds = range(self._round, talks)
        plan = replace(local, steps=len(rounds) * local.steps)
        if self.step_sizes is not None:
            plan = replace(plan, lr=tuple(lr for lr in map(self.step_sizes, rounds) for _ in range(local.steps)))
        self._due[client] = talks
        self._in_flight.add(client, self._round)
        return plan

    def wants(self, client: int, version: int) -> bool:
        return self._in_flight.holds(client, version)

    def receive(self, update: Update) -> bool:
        check_update(update, clients=self._clients, version=self._round, length=self._model.length)
        client = update.client
        if not self.wants(client, update.version):
            return False
        due = self._due.pop(client)
        counts = max(due, self._round + 1)
        self._waiting.setdefault(counts, RunningSum(self._model.length)).add(update.vector, self._shares[client])
        self._in_flight.remove(client)
        self._rest(client, counts)
        return False

    def _rest(self, client: int, counts: int) -> None:
        self._resting[client] = counts
        self._returning.setdefault(counts, []).append(client)

    def drop(self, client: int, version: int) -> bool:
        self._in_flight.lapse(client, version)
        return False

    def tick(self) -> bool:
        self._round += 1
        talked, weight = self._waiting.pop(self._round, None), self._weight(self._round)
        self._model.step(lambda model: self._take_step(model, talked, weight))
        self._weights += weight
        for client in self._returning.pop(self._round, ()):
            del self._resting[client]
        return True

    def _take_step(self, model: Tensor, talked: RunningSum | None, weight: float) -> Tensor:
        if talked is not None:
            model = self._step(model, talked.total())
        if self.average:
            self._weighted.add_(model, alpha=weight)
        return model

    def _weight(self, number: int) -> float:
        """Return w_t = (Δ + t)² for the round t = ``number``."""
        return float(self._gap + number) ** 2

    def state_dict(self) -> dict[str, Any]:
        rounds = sorted(self._waiting)
        sums = [self._waiting[number].total() for number in rounds]
        return {
            "model": self.model.clone(),  # first: it carries out the steps that add to the sum
            "clients": self._clients,
            "round": self._round,
            "shares": torch.tensor(self._shares, dtype=torch.float64),
            "weighted": self._weighted.clone(),
            "weights": self._weights,
            "due": _pairs(self._due),
            "resting": _pairs(self._resting),
            "waiting": torch.stack(sums) if sums else torch.zeros(0, self._model.length),
            "waiting_rounds": torch.tensor(rounds, dtype=torch.int64),
            **prefixed("in_flight", self._in_flight.state_dict()),
            **prefixed("step", self._step.state_dict()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.start(state["model"], state["clients"])
        self._round = state["round"]
        self._shares = state["shares"].tolist()
        self._weighted = state["weighted"].clone()
        self._weights = state["weights"]
        self._due = dict(state["due"].tolist())
        for client, counts in state["resting"].tolist():
            self._rest(client, counts)
        for number, total in zip(state["waiting_rounds"].tolist(), state["waiting"], strict=True):
            self._waiting[number] = RunningSum(self._model.length)
            self._waiting[number].load_state_dict({"sum": total})
        self._in_flight.load_state_dict(under("in_flight", state))
        self._step.load_state_dict(under("step", state))


def _pairs(numbers: dict[int, int]) -> Tensor:
    return torch.tensor(list(numbers.items()), dtype=torch.int64).reshape(-1, 2)
