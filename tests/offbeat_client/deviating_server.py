"""A server that deviates: it drives real clients and the real helper, and solves for one client's update."""

import base64
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_client.client_run import run_client
from offbeat_client.http.connection import Backoff
from offbeat_client.private_updates import public_key
from offbeat_client.visit import Fitted, Visit
from offbeat_core.local_plan import LocalPlan
from offbeat_core.messages import PlanMessage
from offbeat_private.helper.helper import Helper
from offbeat_private.helper.roster import enrol, parse_roster

from tests.offbeat_client.conftest import Server

LENGTH = 6
PLAN = LocalPlan(steps=5, batch_size=8, lr=0.1)
TERMS: dict[str, Any] = {
    "length": LENGTH, "buffer": 4, "min_clients": 2, "clip_norm": 10.0, "noise_multiplier": 0.0,
    "max_participations": 9, "delta": 1e-5,
}  # fmt: skip
LOCAL = {"steps": PLAN.steps, "batch_size": PLAN.batch_size, "lr": PLAN.lr}


class Regression:
    """A client's private examples, and its full-batch SGD on them by the visit's plan."""

    def __init__(self, client: int) -> None:
        random = np.random.default_rng(client)
        self.inputs, self.labels = random.normal(size=(8, LENGTH)), random.normal(size=8)

    def fit(self, model: dict[str, NDArray[np.float32]], visit: Visit) -> Fitted:
        plan, weight, velocity, steps = visit.plan, model["weight"].copy(), np.zeros(LENGTH, np.float32), 0
        with np.errstate(over="ignore", invalid="ignore"):
            while steps < plan.steps and not (steps and visit.urgent.is_set()):
                gradient = (self.inputs.T @ (self.inputs @ weight - self.labels) / 8).astype(np.float32)
                gradient += np.float32(plan.mu) * (weight - model["weight"])
                gradient *= min(1.0, (plan.clip_norm or np.inf) / np.linalg.norm(gradient))
                velocity = plan.momentum * velocity + gradient + np.float32(plan.weight_decay) * weight
                weight -= np.float32(plan.lr) * velocity
                steps += 1
        return Fitted({"weight": weight}, examples=8, steps=steps)

    def update(self, model: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return what the server must not learn: the update by the agreed plan."""
        visit = Visit(client=0, number=0, version=0, since=None, payload="delta", length=LENGTH, seed=5, plan=PLAN)
        return model - self.fit({"weight": model}, visit).model["weight"]


class DeviatingServer:
    """Gives each client what it likes, keeps the masked vectors, and has the helper open sums.

    Clients 0, 1, … have folders of their own in ``folder`` and are on the roster of the helper there.
    """

    def __init__(self, folder: Path, server: Server, backoff: Backoff, clients: int, **terms: Any) -> None:
        self.clients = [Regression(number) for number in range(clients)]
        self._folder, self._server, self._backoff = folder, server, backoff
        self._shares: dict[int, tuple[bytes, NDArray[np.uint32]]] = {}  # those that came last, by client
        self._visits = [0] * clients
        keys = {f"client-{number}": public_key(folder / f"client-{number}") for number in range(clients)}
        table = {"terms": TERMS | terms, "local": LOCAL, "clients": keys}
        roster = parse_roster(table, folder / "roster.toml")
        self._terms = enrol(roster, folder / "helper", ["127.0.0.1"]).terms
        self._stack = ExitStack()
        self.helper = self._stack.enter_context(closing(Helper(folder / "helper")))

    def close(self) -> None:
        self._stack.close()

    def visit(
        self, client: int, version: int, model: NDArray[np.float32], plan: LocalPlan = PLAN, **values: Any
    ) -> None:
        """Let a client do a visit and keep its share; an error of the client's is raised."""
        server = self._server
        for memory in (server.visits, server.bodies, server.receipts, server.announced):
            memory.clear()
        server.open = None
        server.share = lambda _: facts_of(self.helper)
        server.serve(version, {"weight": model})
        number, self._visits[client] = self._visits[client], self._visits[client] + 1
        privacy = {"terms": self._terms.digest.hex(), "divisor": values.pop("divisor", 1.0)}
        visit = {"number": number, "version": version, "since": None, "payload": "delta", "length": LENGTH, "seed": 5}
        message = {"plan": PlanMessage.of(plan).model_dump(), "lease_seconds": None, "urgent": False}
        server.visits.append({**visit, **message, "privacy": privacy, **values})
        run_client(
            server.url,
            lambda _: self.clients[client],
            self._folder / f"client-{client}",
            enrolment_token="obe_1",
            visits=1,
            backoff=self._backoff,
            terms=self._folder / "helper" / "terms.json",
        )
        record = server.announced[number]["share"]
        self._shares[client] = base64.b64decode(record), np.frombuffer(server.bodies[number], "<u4").astype(np.uint32)

    def came(self) -> set[int]:
        """Return the clients whose shares came since the last sum."""
        return set(self._shares)

    def open(self, clients: Sequence[int]) -> NDArray[np.float64]:
        """Have the helper open the sum of these clients' last shares, and return it.

        Raises ``HelperRefusal`` if the helper does not open it.
        """
        records, vectors = zip(*(self._shares.pop(client) for client in clients), strict=True)
        answer = self.helper.open(self.helper.facts().head.number + 1, records)
        words = np.frombuffer(answer.path.read_bytes(), "<u4").astype(np.uint32)
        return (np.sum(vectors, axis=0, dtype=np.uint32) - words).view(np.int32) * self._terms.step


def facts_of(helper: Helper) -> dict[str, Any]:
    """Return a helper's facts as a server passes them on."""
    facts = helper.facts()
    head = {"number": facts.head.number, "digest": facts.head.digest.hex(), "signature": facts.signature.hex()}
    key = {"public_key": facts.epoch_key[4:36].hex(), "signature": facts.epoch_key[36:].hex()}
    return {"version": facts.head.number, "scale": 1.0, "epoch": {"number": facts.epoch} | key, "head": head}
