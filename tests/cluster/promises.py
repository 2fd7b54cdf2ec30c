"""The promises of a cluster, checked at each step and at the end of a schedule."""

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from offbeat_core import messages
from offbeat_core.tokens import token_hash
from safetensors.numpy import load

from offbeat.coordinator import Coordinator, RecordedCall
from offbeat.coordinator.visits import Receipt
from offbeat.service.log.log import COORDINATOR, TERM, Row
from offbeat.service.store.server_state import ServerState
from tests.cluster.server import LAYOUT, LENGTH, ServerProcess

if TYPE_CHECKING:
    from tests.cluster.world import World

Visit = tuple[int, int]  # a client and the number of its visit


class Promises:
    """Hears of each row of the log and of each answer to a client; ``broken`` are the promises that were not kept."""

    def __init__(self, world: "World") -> None:
        self.broken: list[str] = []
        self._world = world
        self._writers: dict[int, str] = {}  # by epoch
        self._epoch = 0
        self._outcomes: dict[Visit, tuple[bool, int]] = {}  # in the log: whether the update counted, its staleness
        self._assigned: dict[int, int] = defaultdict(int)  # by client, the visits in the log
        self._enrolled: dict[str, int] = {}  # in the log, by the token's hash
        self._revoked: dict[int, float] = {}  # in the log, with the time
        self._digests: dict[Visit, str] = {}  # of what clients send
        self._receipts: list[tuple[Visit, Receipt]] = []  # that clients were told
        self._visits: list[tuple[int, messages.VisitMessage]] = []
        self._files: dict[int, bytes] = {}  # of versions, that somebody has read
        self._was_finished = False

    def note(self, problem: str) -> None:
        """Record a broken promise."""
        if problem not in self.broken:
            self.broken.append(problem)
            self._world.trace("promises", "broken", problem=problem)

    # Rows of the log, when they are appended.

    def appended(self, writer: str, row: Row) -> None:
        """Check a new row."""
        shown = {"writer": writer, "epoch": row.epoch, "owner": row.owner, "arguments": row.arguments[:200]}
        self._world.trace("log", f"row {row.number} {row.name}", **shown)
        if row.number != len(self._world.log.rows):
            self.note(f"row {row.number} has the place {len(self._world.log.rows)}")
        if row.epoch != self._epoch + (row.owner == TERM):
            self.note(f"row {row.number} of epoch {row.epoch} follows one of epoch {self._epoch}")
        self._epoch = row.epoch
        if self._writers.setdefault(row.epoch, writer) != writer:
            self.note(f"{writer} and {self._writers[row.epoch]} both write in epoch {row.epoch}")
        values = row.values
        for name in self._blobs_of(row, values):
            if name not in self._world.blobs.blobs:
                self.note(f"row {row.number} names {name}, which is not there")
        match row.owner, row.name:
            case "coordinator", "receive":
                self._receive(row, values)
            case "coordinator", "assign":
                for client in values["clients"]:
                    self._assigned[client] += 1
                    if self._world.loop.time() > self._revoked.get(client, np.inf) + 1:
                        self.note(f"client {client} gets work after it was revoked")
            case "accounts", "enrol":
                self._enrolled[values["token"]] = values["client"]
            case "accounts", "revoke_client":
                self._revoked.setdefault(values["client"], self._world.loop.time())
            case _:
                pass

    def _receive(self, row: Row, values: dict[str, Any]) -> None:
        visit, outcome = (values["client"], values["visit"]), tuple(values["outcome"])
        if visit in self._outcomes:
            self.note(f"the update of visit {visit} is in the log twice")
        self._outcomes[visit] = outcome
        if row.digest != self._digests.get(visit):
            self.note(f"the update of visit {visit} is not the one that was sent")
        if self._world.loop.time() > self._revoked.get(visit[0], np.inf) + 1:
            self.note(f"an update of client {visit[0]} is taken in after it was revoked")

    def _blobs_of(self, row: Row, values: dict[str, Any]) -> list[str]:
        names = [f"updates/{row.blob}"] if row.blob is not None else []
        if row.owner == "checkpoint":
            names += [values["file"], *(name for name, _ in values["models"].values())]
        return [f"{self._world.log.run}/{name}" for name in names]

    # What clients are told.

    def sends(self, client: int, visit: int, digest: str) -> None:
        """Note what a client sends."""
        self._digests[client, visit] = digest

    def enrolled(self, token: str, client: int) -> None:
        """Check the answer to an enrolment."""
        if self._enrolled.get(token_hash(token)) != client:
            self.note(f"client {client} was told that it has enrolled, which is not in the log")

    def assigned(self, client: int, visit: messages.VisitMessage) -> None:
        """Check a visit that a client was given."""
        if visit.number >= self._assigned[client]:
            self.note(f"client {client} was given visit {visit.number}, which is not in the log")
        self._visits.append((client, visit))

    def received(self, client: int, visit: int, receipt: messages.ReceiptMessage, digest: str | None) -> None:
        """Check a receipt that a client was told."""
        if receipt.counted is None:
            return  # it says nothing
        assert receipt.staleness is not None
        assert receipt.new_version is not None
        told = Receipt(receipt.counted, receipt.staleness, receipt.new_version)
        if told.counted and self._outcomes.get((client, visit)) != (True, told.staleness):
            self.note(f"client {client} was told that visit {visit} has counted, which is not in the log")
        self._receipts.append(((client, visit), told))

    def downloaded(self, version: int, content: bytes) -> None:
        """Check the file of a version that somebody has read."""
        if self._files.setdefault(version, content) != content:
            self.note(f"version {version} has two contents")

    def finished(self) -> None:
        """Note that a client was told that the run is over."""
        self._was_finished = True

    def denied(self, client: int | None, token: str, what: str, kind: str, detail: str) -> None:
        """Check a refusal that a client will not ask against."""
        if kind == "revoked-token" and client in self._revoked:
            return
        self.note(f"client {client} was refused to {what}: {kind}: {detail}")

    # The end.

    def check_end(self, processes: list[ServerProcess], folders: list[Path]) -> None:
        """Check all that was told, and the servers' states and files, by a replay of the log from its start."""
        replayed = replay(self._world)
        for visit, told in self._receipts:
            known = replayed.receipts.get(visit)
            if told.counted and known != told:
                self.note(f"visit {visit} was told {told}; it is {known}")
            if not told.counted and visit in self._outcomes and self._outcomes[visit][0]:
                self.note(f"visit {visit} was told that it does not count, and it does")
        for client, visit in self._visits:
            known = replayed.assignments.get((client, visit.number))
            if known != (visit.version, visit.since):
                self.note(f"visit {client, visit.number} was told {visit.version, visit.since}; it is {known}")
        for client, at in self._revoked.items():
            if self._world.loop.time() > at + 1 and replayed.coordinator.visits.has_slot(client):
                self.note(f"client {client} was revoked, and still has its slot")
        if self._was_finished and replayed.coordinator.algorithm.version < self._world.stop_versions:
            self.note("a client was told that the run is over, and it is not")
        for folder in folders:
            for path in (folder / "models").glob("*.safetensors"):
                if path.stem.isdecimal():
                    self.downloaded(int(path.stem), path.read_bytes())
        for version, content in self._files.items():
            if load(content)["weight"].tobytes() != replayed.models.get(version):
                self.note(f"version {version} is another one than the log makes")
        for _, visit in self._visits:
            content = self._files.get(visit.version)
            if content is not None and hashlib.sha256(content).hexdigest() != visit.model_sha256:
                self.note(f"version {visit.version} has another digest than a client was told")
        for process in processes:
            self._check_state(process, replayed)

    def _check_state(self, process: ServerProcess, replayed: "Replayed") -> None:
        if process.replay is None or process.replay.number != len(self._world.log.rows):
            return
        own, true = plain(process.replay.coordinator), plain(replayed.coordinator)
        wrong = [key for key in true if own.get(key) != true[key]]
        if wrong:
            self.note(f"the state of {process.name} is not that of its log: {', '.join(wrong)}")
        own, true = process.replay.state.state_dict(), replayed.state.state_dict()
        for key in ("run", "registry", "audit_head"):
            if own[key] != true[key]:
                self.note(f"the state of {process.name} is not that of its log: {key}")


@dataclass
class Replayed:
    """The state that all of the log's rows make."""

    coordinator: Coordinator
    state: ServerState = field(default_factory=ServerState)
    models: dict[int, bytes] = field(default_factory=dict)  # by version
    receipts: dict[Visit, Receipt] = field(default_factory=dict)
    assignments: dict[Visit, tuple[int, int | None]] = field(default_factory=dict)  # version and since


def replay(world: "World") -> Replayed:
    """Make the calls of the log again, from nothing, without a server's files."""
    replayed = Replayed(world.new_coordinator())
    coordinator = replayed.coordinator
    _keep_model(replayed)
    for row in world.log.history:
        values = row.values
        replayed.state.apply(row, values)
        if row.owner != COORDINATOR:
            continue
        outcome = values.pop("outcome", None)
        if row.name == "receive":
            values["vector"] = _vector(world, row) if outcome[0] else torch.zeros(LENGTH)
            values["base"] = None
        coordinator.replay(RecordedCall(row.name, values))
        if row.name == "receive":
            visit = (values["client"], values["visit"])
            receipt = coordinator.visits.receipt(*visit)
            if receipt is not None:
                replayed.receipts[visit] = receipt
        if row.name == "assign":
            for client in values["clients"]:
                assignment = coordinator.visits.assignment(client)
                assert assignment is not None
                replayed.assignments[client, assignment.visit] = (assignment.version, assignment.since)
        _keep_model(replayed)
    return replayed


def _keep_model(replayed: Replayed) -> None:
    algorithm = replayed.coordinator.algorithm
    if algorithm.version not in replayed.models:
        replayed.models[algorithm.version] = algorithm.model.numpy().tobytes()


def _vector(world: "World", row: Row) -> torch.Tensor:
    body = row.body
    if body is None:
        body = world.blobs.history[f"{world.log.run}/updates/{row.blob}"]
    if hashlib.sha256(body).hexdigest() != row.digest:
        world.promises.note(f"row {row.number} has another update than its digest says")
    return torch.from_numpy(load(body)["update"])


def plain(coordinator: Coordinator) -> dict[str, Any]:
    """Return a coordinator's state, but for which clients are there."""
    coordinator.forget_presence()
    state = {}
    for key, value in coordinator.state_dict().items():
        state[key] = value.tolist() if isinstance(value, torch.Tensor) else json.loads(json.dumps(value))
    return state


assert LAYOUT == [("weight", (LENGTH,))]
