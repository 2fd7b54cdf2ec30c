"""A replay of the log that is independent of the servers'."""

import hashlib
from typing import TYPE_CHECKING

import torch
from safetensors.numpy import load

from offbeat.coordinator import RecordedCall
from offbeat.coordinator.visits import Receipt
from offbeat.service.log.log import COORDINATOR, Row
from offbeat.service.store.server_state import ServerState
from tests.cluster.server import LENGTH

if TYPE_CHECKING:
    from tests.cluster.world import World

Visit = tuple[int, int]
"""A client and the number of its visit."""


class Replay:
    """The state that all of the log's rows make, from nothing, without a server's files."""

    def __init__(self, world: "World") -> None:
        self.coordinator = world.new_coordinator()
        self.state = ServerState()
        self.heads = {str(self.state.audit_head)}  # of the audit log
        self.models: dict[int, bytes] = {}  # by version
        self.receipts: dict[Visit, Receipt] = {}
        self.assignments: dict[Visit, tuple[int, int | None]] = {}  # version and since
        self._world = world
        self._keep_model()

    def apply(self, row: Row) -> None:
        """Make the change of the next row."""
        values = row.values
        self.state.apply(row, values)
        self.heads.add(str(self.state.audit_head))
        if row.owner != COORDINATOR:
            return
        outcome, coordinator = values.pop("outcome", None), self.coordinator
        if row.name == "receive":
            values["vector"] = _vector(self._world, row) if outcome[0] else torch.zeros(LENGTH)
            values["base"] = None
        coordinator.replay(RecordedCall(row.name, values))
        if row.name == "receive":
            visit = (values["client"], values["visit"])
            receipt = coordinator.visits.receipt(*visit)
            if receipt is not None:
                self.receipts[visit] = receipt
        if row.name == "assign":
            for client in values["clients"]:
                assignment = coordinator.visits.assignment(client)
                assert assignment is not None
                self.assignments[client, assignment.visit] = (assignment.version, assignment.since)
        self._keep_model()

    def _keep_model(self) -> None:
        algorithm = self.coordinator.algorithm
        if algorithm.version not in self.models:
            self.models[algorithm.version] = algorithm.model.numpy().tobytes()


def _vector(world: "World", row: Row) -> torch.Tensor:
    body = row.body
    if body is None:
        body = world.blobs.history[f"{world.log.run}/updates/{row.blob}"]
    if hashlib.sha256(body).hexdigest() != row.digest:
        world.promises.note(f"row {row.number} has another update than its digest says")
    return torch.from_numpy(load(body)["update"])
