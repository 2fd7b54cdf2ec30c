"""A run of an algorithm over Flower's Grid."""

# pyright: reportMissingImports=false

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import DEFAULT_TTL, Message, MessageType
from flwr.serverapp import Grid
from offbeat_client.local_update import result_vector
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import normaliser
from offbeat_core.sent_update import send
from torch import Tensor

from offbeat.algorithms.components.client_update import check_vector
from offbeat.algorithms.components.component import prefixed, under
from offbeat.coordinator import Assignment, Coordinator
from offbeat.flower.model_arrays import Arrays, ModelArrays
from offbeat.flower.nodes import Nodes
from offbeat.flower.records import ReplyError, Trained, read_trained, train_content

_EXPIRED = 3  # Flower's error code of a message whose TTL has passed
_OFFLINE = 5  # and of one whose node is offline
_MOST_FAILURES = 20  # before the first update; then the app is broken

_log = logging.getLogger("flwr")  # as of Flower's strategies: its lines are in the run's log


class _Sent(NamedTuple):
    """A message on its way."""

    assignment: Assignment
    node: int
    start: Tensor  # the model that it holds, (d,)
    seconds: float  # when it was sent


@dataclass
class GridRun:
    """A coordinator whose clients are the nodes of a Grid.

    ``step`` is one look at the Grid; nothing waits for slow nodes. A message is one visit, its TTL the visit's lease.
    Flower's errors end the visit: 3 (the TTL has passed) as its lease does, all others as a client's give-up. A client
    whose node the Grid does not list is offline.

    Args:
        grid: Flower's Grid.
        coordinator: A fresh coordinator, or one that has been loaded.
        model: The arrays of the app's model.
        client_fn: Whether the app is a ``ClientApp(client_fn)``.
        began: The clock's seconds at the run's time 0.
    """

    grid: Grid
    coordinator: Coordinator
    model: ModelArrays
    client_fn: bool = False
    began: float = 0.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._nodes = Nodes(self.coordinator.clients)
        self._sent: dict[str, _Sent] = {}
        self._memories: dict[int, Tensor] = {}  # of clients whose updates are differences: their last counted deltas
        self._failures = 0
        period = self.coordinator.algorithm.period
        self._next_tick = math.inf if period is None else self.now + period

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return self.clock() - self.began

    def step(self) -> bool:
        """Take in replies and send work; return whether there was a reply."""
        replies = list(self.grid.pull_messages(list(self._sent))) if self._sent else []
        for reply in replies:
            self.take_in(reply)
        self._pass_time()
        self.see_nodes()
        self.send(self.coordinator.assign(self.now))
        return bool(replies)

    def see_nodes(self) -> None:
        """Record the clients that are online, and those that are idle."""
        infos = sorted(self.grid.get_nodes(), key=lambda info: (info.registered_at, info.node_id))
        for client in self._nodes.see(info.node_id for info in infos):
            self.coordinator.absent(self.now, client)
        busy = {sent.node for sent in self._sent.values()}
        for client, node in self._nodes.available.items():
            if node not in busy:
                self.coordinator.present(self.now, client)

    def take_in(self, reply: Message) -> None:
        """End the visit whose message this is a reply to."""
        sent = self._sent.pop(reply.metadata.reply_to_message_id, None)
        if sent is None:
            return
        client, visit, version, *_ = sent.assignment
        try:
            if reply.has_error():
                self._lose(sent, reply.error.code, reply.error.reason)
            else:
                self._receive(sent, read_trained(reply.content, self._arrays(sent.start), self.model.shapes))
        except (ReplyError, ValueError) as error:
            _log.warning("client %d, from version %d: its update is dropped: %s", client, version, error)
            self.coordinator.drop(self.now, client, visit)
            self._note_failure(str(error))

    def _lose(self, sent: _Sent, code: int, reason: str | None) -> None:
        client, visit, version, *_ = sent.assignment
        first_line = next(iter((reason or "").strip().splitlines()), "")
        _log.warning("client %d, from version %d: error %d: %s", client, version, code, first_line)
        if code == _EXPIRED:
            self.coordinator.lapse(self.now)
        # Also where the lease seems to last a little longer than the TTL.
        self.coordinator.drop(self.now, client, visit)
        if code not in (_EXPIRED, _OFFLINE):
            self._note_failure(first_line)

    def _note_failure(self, reason: str) -> None:
        """Count a failure; raise ``OffbeatError`` if the app has never done anything else."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES and not self.coordinator.statistics.counted:
            raise OffbeatError(f"the app has failed {self._failures} times and never trained, the last time: {reason}")

    def _receive(self, sent: _Sent, trained: Trained) -> None:
        """Hand a reply's update to the coordinator."""
        client, visit, _, plan, _, since, _ = sent.assignment
        algorithm, now = self.coordinator.algorithm, self.now
        if algorithm.needs_loss and trained.loss is None:
            raise ReplyError("the algorithm needs each visit's loss: return train_loss in a MetricRecord")
        result = result_vector(algorithm.payload, self.model.named(sent.start), trained.arrays)
        memory = self._memories.get(client)
        update = send(algorithm.payload, result, None if memory is None else memory.numpy(), plan, seed=0)
        vector = torch.from_numpy(update.vector)
        check_vector(vector, len(sent.start))
        receipt = self.coordinator.receive(
            now,
            client,
            visit,
            vector,
            base=sent.start if algorithm.needs_base else None,
            examples=trained.examples,
            steps=plan.steps,
            normaliser=normaliser(plan),
            since=None if memory is None and algorithm.payload == "difference" else since,
            step_seconds=(now - sent.seconds) / plan.steps,
            loss=trained.loss if algorithm.needs_loss else None,
        )
        if receipt.counted and update.memory is not None:
            self._memories[client] = torch.from_numpy(np.array(update.memory))

    def _pass_time(self) -> None:
        """Let leases lapse, and the algorithm's periods pass."""
        now = self.now
        self.coordinator.lapse(now)
        period = self.coordinator.algorithm.period
        if period is not None and self._next_tick <= now:
            self.coordinator.tick(now)
            self._next_tick += period * max(1, math.ceil((now - self._next_tick) / period))

    def send(self, assignments: Sequence[Assignment]) -> None:
        """Send work to nodes; the assignments are from the newest version."""
        if not assignments:
            return
        now = self.now
        start, nodes = self.coordinator.algorithm.model, self._nodes.available
        arrays = self._arrays(start)
        messages: list[Message] = []
        for assignment in assignments:
            content = train_content(arrays, assignment.plan, assignment.version, client_fn=self.client_fn)
            seconds = assignment.lease_until - now
            ttl = DEFAULT_TTL if math.isinf(seconds) else seconds
            node, group = nodes[assignment.client], str(assignment.version)
            messages.append(Message(content, node, MessageType.TRAIN, ttl=ttl, group_id=group))
        for message, assignment in zip(messages, assignments, strict=True):
            # One by one: a Grid may leave out the ids of messages that it refuses.
            ids = [number for number in self.grid.push_messages([message]) if number]
            if ids:
                self._sent[ids[0]] = _Sent(assignment, nodes[assignment.client], start, now)
            else:
                self.coordinator.drop(now, assignment.client, assignment.visit)

    def _arrays(self, vector: Tensor) -> Arrays:
        return self.model.complete(self.model.named(vector), {})

    def state_dict(self) -> dict[str, Any]:
        """Return all that a restart needs, as a flat dict of tensors and plain values."""
        memories = {f"memory.{client}": memory for client, memory in self._memories.items()}
        coordinator = prefixed("coordinator", self.coordinator.state_dict())
        return {**coordinator, **self._nodes.state_dict(), **memories, "now": self.now}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a saved state.

        Messages of the ServerApp that has ended cannot be pulled by another, so their visits are given up.
        """
        self.coordinator.load_state_dict(under("coordinator", state))
        self._nodes.load_state_dict(state)
        self._memories = {int(client): memory.clone() for client, memory in under("memory", state).items()}
        self.began = self.clock() - state["now"]
        self._next_tick += state["now"]
        self.coordinator.forget_presence()
        for assignment in list(self.coordinator.visits.open_assignments()):
            self.coordinator.drop(self.now, assignment.client, assignment.visit)
