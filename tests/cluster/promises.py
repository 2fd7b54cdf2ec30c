"""The promises of a cluster, checked at each step and at the end of a schedule."""

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from offbeat_core import messages
from offbeat_core.tokens import token_hash
from safetensors.numpy import load

from offbeat.coordinator import Coordinator
from offbeat.coordinator.visits import Receipt
from offbeat.service.log.log import TERM, Row
from tests.cluster.replay import Replay, Visit
from tests.cluster.server import ServerProcess

if TYPE_CHECKING:
    from tests.cluster.world import World

_REVOKED_SECONDS = 1.0  # after which a revoked client is refused everywhere
_WAKING_SECONDS = 1.0  # after which a client that waits has heard of its work


class Promises:
    """Hears of each row of the log and of each answer to a client; ``broken`` are the promises that were not kept."""

    def __init__(self, world: "World") -> None:
        self.broken: list[str] = []
        self._world = world
        self._writers: dict[int, str] = {}  # by epoch
        self._epoch = 0
        self._outcomes: dict[Visit, tuple[bool, int]] = {}  # in the log: whether the update counted, its staleness
        self._assigned: dict[int, int] = defaultdict(int)  # by client, the visits in the log
        self._last_assigned: dict[int, float] = {}  # by client, when its last visit came into the log
        self._enrolled: dict[str, int] = {}  # in the log, by the token's hash
        self._revoked: dict[int, float] = {}  # in the log, with the time
        self._digests: dict[Visit, str] = {}  # of what clients send
        self._receipts: list[tuple[Visit, Receipt]] = []  # that clients were told
        self._visits: list[tuple[int, messages.VisitMessage]] = []
        self._files: dict[int, bytes] = {}  # of versions, that somebody has read
        self._was_finished = False
        self._told_revoked: set[int] = set()
        self._told_heads: set[str] = set()
        self._replay = Replay(world)

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
                    self._last_assigned[client] = self._world.loop.time()
                    if self._world.loop.time() > self._revoked.get(client, np.inf) + _REVOKED_SECONDS:
                        self.note(f"client {client} gets work after it was revoked")
            case "accounts", "enrol":
                self._enrolled[values["token"]] = values["client"]
            case "accounts", "revoke_client":
                self._revoked.setdefault(values["client"], self._world.loop.time())
            case _:
                pass

        try:
            self._replay.apply(row)
        except Exception as error:
            self.note(f"row {row.number} does not follow from those before it: {error!r}")

    def _receive(self, row: Row, values: dict[str, Any]) -> None:
        visit, outcome = (values["client"], values["visit"]), tuple(values["outcome"])
        if visit in self._outcomes:
            self.note(f"the update of visit {visit} is in the log twice")
        self._outcomes[visit] = outcome
        if row.digest != self._digests.get(visit):
            self.note(f"the update of visit {visit} is not the one that was sent")
        if self._world.loop.time() > self._revoked.get(visit[0], np.inf) + _REVOKED_SECONDS:
            self.note(f"an update of client {visit[0]} is taken in after it was revoked")

    def _blobs_of(self, row: Row, values: dict[str, Any]) -> list[str]:
        names = [f"updates/{row.blob}"] if row.blob is not None else []
        if row.owner == "checkpoint":
            names += [values["file"], *(name for name, _ in values["models"].values())]
        return [f"{self._world.log.run}/{name}" for name in names]

    # Answers to clients.

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

    def woken(self, client: int, began: float) -> None:
        """Check that a client that waits since it ``began`` hears of its work at once, while nothing is in trouble."""
        if (late := self._world.loop.time() - max(began, self._last_assigned[client])) > _WAKING_SECONDS:
            self.note(f"client {client} waited, and heard of its work {late:.1f} s late")

    def received(self, client: int, visit: int, receipt: messages.ReceiptMessage) -> None:
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

    def revoked(self, client: int) -> None:
        """Check the answer to an admin who has revoked a client."""
        if client not in self._revoked:
            self.note(f"an admin was told that client {client} is revoked, which is not in the log")
        self._told_revoked.add(client)

    def told_head(self, head: str | None) -> None:
        """Note what a client was told as the audit log's head."""
        if head is not None:
            self._told_heads.add(head)

    def finished(self) -> None:
        """Note that a client was told that the run is over."""
        self._was_finished = True

    def admitted(self, client: int, began: float, what: str, server: str) -> None:
        """Check that a client whose request was granted had not been revoked for long when it ``began``."""
        if began > self._revoked.get(client, np.inf) + _REVOKED_SECONDS:
            self.note(f"{server} lets client {client} {what}, which was revoked")

    def denied(self, client: int | None, visit: int | None, what: str, kind: str, detail: str) -> None:
        """Check a refusal that a client will not ask against."""
        if kind == "revoked-token" and client in self._revoked:
            return
        if kind == "no-such-version" and client is not None and self._has_ended(client, visit):
            return
        self.note(f"client {client} was refused to {what}: {kind}: {detail}")

    def _has_ended(self, client: int, visit: int | None) -> bool:
        visits = self._replay.coordinator.visits
        return visits.latest(client) != visit or not visits.has_slot(client)

    # The end.

    def check_end(self, processes: list[ServerProcess], folders: list[Path]) -> None:
        """Check all that was told, and the servers' states and files, by a replay of the log from its start."""
        replayed = self._replay
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
        for client in self._told_revoked:
            if replayed.coordinator.visits.has_slot(client):
                self.note(f"client {client} was revoked, and still has its slot")
        for head in self._told_heads - replayed.heads:
            self.note(f"a client was told the audit log's head {head}, which it never had")
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

    def _check_state(self, process: ServerProcess, replayed: Replay) -> None:
        number, coordinator, state = process.state()
        if coordinator is None or state is None or number != len(self._world.log.rows):
            return
        own, true = plain(coordinator), plain(replayed.coordinator)
        wrong = [key for key in true if own.get(key) != true[key]]
        if wrong:
            self.note(f"the state of {process.name} is not that of its log: {', '.join(wrong)}")
        own, true = state.state_dict(), replayed.state.state_dict()
        for key in ("run", "registry", "audit_head"):
            if own[key] != true[key]:
                self.note(f"the state of {process.name} is not that of its log: {key}")


def plain(coordinator: Coordinator) -> dict[str, Any]:
    """Return a coordinator's state, but for which clients are there."""
    coordinator.forget_presence()
    state = {}
    for key, value in coordinator.state_dict().items():
        state[key] = value.tolist() if isinstance(value, torch.Tensor) else json.loads(json.dumps(value))
    return state
