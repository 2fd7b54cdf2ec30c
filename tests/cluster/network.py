"""Requests of clients over a network that delays, loses and repeats them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from tests.cluster.server import Operation, ServerProcess, ServingProcess

if TYPE_CHECKING:
    from tests.cluster.world import World


class LostError(Exception):
    """A lost request, or a lost answer."""


@dataclass
class Answer:
    """A server's answer."""

    status: int
    body: Any
    server: str


@dataclass
class NetworkFaults:
    """The rates at which requests are lost, answers too, and come twice."""

    lost: float = 0.03
    doubled: float = 0.05
    mean_seconds: float = 0.02


class Network:
    """The way of clients to the server that listens: several may seem to, of which one is too late."""

    def __init__(self, world: "World", random: Random) -> None:
        self.faults = NetworkFaults()
        self.unreachable: set[str] = set()  # processes that no client reaches
        self._world = world
        self._random = random

    async def ask(
        self,
        operation: Operation,
        seconds: float,
        hear: Callable[[Answer], None] = lambda answer: None,
        *,
        is_for_server: bool = False,
        **path_parameters: str,
    ) -> Answer:
        """Send a request to a front or a server that listens, and return its answer.

        ``hear`` gets every answer, also one that comes too late. ``is_for_server`` is for what a real front would pass
        on to the leader's application.

        Raises:
            LostError: There is none within some seconds.
        """
        future: asyncio.Future[Answer] = self._world.loop.create_future()
        scope = {
            "type": "http",
            "operation": operation,
            "hear": hear,
            "is_for_server": is_for_server,
            "path_parameters": path_parameters,
        }
        if not self._happens(self.faults.lost):
            self._world.loop.later(self._delay(), self._deliver, scope, future)
        if self._happens(self.faults.doubled):
            self._world.loop.later(self._random.choice((1, 100)) * self._delay(), self._deliver, scope, future)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            raise LostError from None

    def _deliver(self, scope: dict[str, Any], future: asyncio.Future[Answer]) -> None:
        listening = [process for process in self._world.processes() if process.app is not None]
        if scope["is_for_server"]:
            listening = [process for process in listening if isinstance(process, ServerProcess)]
        if not listening:
            return
        process = self._random.choice(listening)
        if process.name not in self.unreachable:
            process.start(self._handle(process, scope, future))

    async def _handle(self, process: ServingProcess, scope: dict[str, Any], future: asyncio.Future[Answer]) -> None:
        sent: list[dict[str, Any]] = []

        async def send(message: dict[str, Any]) -> None:
            sent.append(message)

        if process.app is None:
            return
        process.requests += 1
        try:
            await process.app(scope, None, send)
        except Exception as error:
            self._world.promises.note(f"{process.name} answers 500: {error!r}")
            self._world.note_error(error)
            return
        finally:
            process.requests -= 1
        answer = Answer(sent[0]["status"], sent[1]["body"], process.name)
        if process.name not in self.unreachable and not self._happens(self.faults.lost):
            self._world.loop.later(self._delay(), self._answer, answer, scope["hear"], future)

    def _answer(self, answer: Answer, hear: Callable[[Answer], None], future: asyncio.Future[Answer]) -> None:
        hear(answer)
        if not future.done():
            future.set_result(answer)

    def _delay(self) -> float:
        return self._random.expovariate(1 / self.faults.mean_seconds)

    def _happens(self, probability: float) -> bool:
        return self._random.random() < probability
