"""Flower's link between ServerApp and nodes, in memory; a test plays the nodes."""

import secrets
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import NOOP_FLWR_AID, SUPERLINK_NODE_ID
from flwr.proto.task_pb2 import Task
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.server.superlink.linkstate.in_memory_linkstate import RunRecord
from flwr.supercore.constant import FLWR_IN_MEMORY_DB_NAME, NOOP_FEDERATION_ID
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager
from flwr.superlink.grid import InMemoryGrid

RUN, TASK = 5, 6
ALWAYS = 1e300


class Link:
    """A Grid, and nodes in the order of their registration."""

    def __init__(self, nodes: int) -> None:
        factory = LinkStateFactory(FLWR_IN_MEMORY_DB_NAME, NoOpFederationManager(), ObjectStoreFactory())
        self.state: Any = factory.state()
        run = Run.create_empty(run_id=RUN)
        run.primary_task_id, run.federation_id = TASK, NOOP_FEDERATION_ID
        self.state.run_ids[RUN] = RunRecord(run=run)
        self.state.task_store[TASK] = Task(task_id=TASK, run_id=RUN)
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = TASK, RUN, SUPERLINK_NODE_ID
        self.grid = InMemoryGrid(state_factory=factory)
        self.grid.set_run(run)
        self.nodes: list[int] = []
        for _ in range(nodes):
            self.join()

    def join(self, heartbeat_interval: float = ALWAYS) -> int:
        """Let another node register; return its id."""
        node = self.state.create_node(NOOP_FLWR_AID, "", secrets.token_bytes(32), heartbeat_interval=heartbeat_interval)
        self.state.acknowledge_node_heartbeat(node_id=node, heartbeat_interval=heartbeat_interval)
        self.nodes.append(node)
        return node

    def set_online(self, number: int, online: bool) -> None:
        """Let a node be online or offline."""
        info = self.state.nodes[self.nodes[number]]
        info.status, info.online_until = ("online", ALWAYS) if online else ("offline", 1.0)

    def messages(self, number: int) -> list[Message]:
        """Take the messages for a node."""
        return list(self.state.get_message_ins(node_id=self.nodes[number], limit=1))

    def answer(self, number: int, app: Callable[[Message, Context], Message]) -> bool:
        """Let a node answer its message, if it has one; return whether it has."""
        messages = self.messages(number)
        for message in messages:
            context = Context(RUN, self.nodes[number], {"partition-id": number}, RecordDict(), {})
            self.send(app(message, context))
        return bool(messages)

    def fail(self, number: int, code: int) -> None:
        """Let a node answer with an error."""
        for message in self.messages(number):
            self.send(Message(Error(code, "as told\nat length"), reply_to=message))

    def send(self, reply: Message) -> None:
        reply.metadata.__dict__["_message_id"] = str(uuid4())
        self.state.store_message_res(reply)
