"""The leader's end: fronts connect to it, and its handler answers their questions."""

import asyncio
import logging
import os
import ssl
import stat
import traceback
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_core.serving.console_log import event
from pydantic import BaseModel

from offbeat.service.internal.answers import Farewell, Refused, Welcome
from offbeat.service.internal.batches import ProtocolError, leader_opening, read_asked, told
from offbeat.service.internal.channel import Address, Channel, shown
from offbeat.service.internal.questions import (
    INTERNAL_PROTOCOL,
    LARGEST_FRONT_WEIGHT,
    Hello,
    Question,
    StopWaiting,
    WaitingQuestion,
    weight,
)
from offbeat.service.refusal import Refusal

Handler = Callable[[Question[Any], bool], Awaitable[BaseModel | asyncio.Future[None]]]

LARGEST_WEIGHT = 2 * LARGEST_FRONT_WEIGHT
"""More than this of a front's questions waits for answers only if the front does not count."""

_MOST_FRONTS = 64
_GREETING_SECONDS = 5.0  # until a front must have said who it is


class FrontEndpoint:
    """Answers the questions of fronts, in any order.

    Until ``lead`` is called, fronts are sent away.

    Args:
        run: The run's id.
        handler: Called with a question and whether it has waited, each in a task; returns an answer of the question's
            class or raises ``Refusal``. For a ``WaitingQuestion`` that has not waited it may return a turn, after which
            it is called again. It or the turn is cancelled if nobody waits any more for the answer.
    """

    def __init__(self, run: str, handler: Handler) -> None:
        self.run = run
        self.handler = handler
        self.epoch: int | None = None
        self.fronts: dict[str, _FrontChannel] = {}
        self.channels: set[_FrontChannel] = set()
        self.orphaned = 0  # the weight of questions whose connection was lost, while their handlers run
        self._servers: list[asyncio.Server] = []

    async def listen(self, address: Address, context: ssl.SSLContext | None = None) -> None:
        """Accept fronts at an address; also at several.

        A host and a port need ``context``, that of ``leader_context``. A Unix socket's folder is made if it does not
        exist; nobody but this user may enter it.
        """
        loop = asyncio.get_running_loop()
        factory = partial(_FrontChannel, self)
        try:
            if isinstance(address, Path):
                _check_private(address.parent)
                server = await loop.create_unix_server(factory, str(address))
            else:
                assert context is not None, "fronts on other machines need TLS"
                server = await loop.create_server(
                    factory, *address, ssl=context, ssl_handshake_timeout=_GREETING_SECONDS, ssl_shutdown_timeout=1.0
                )
        except (OSError, ValueError) as error:
            raise OffbeatError(f"cannot listen for fronts at {shown(address)}: {error}") from None
        self._servers.append(server)

    def lead(self, epoch: int) -> None:
        """Answer from now on, as the leader of an epoch of the log."""
        assert self.epoch is None, "first follow"
        self.epoch = epoch

    def follow(self, reason: str) -> None:
        """Answer nothing until the next ``lead``.

        Another process may lead, or this one stops.
        """
        self.epoch = None
        for channel in list(self.channels):
            channel.dismiss(Farewell(kind="stopping", reason=reason))

    async def close(self, reason: str) -> None:
        """Send all fronts away, and accept none."""
        for server in self._servers:
            server.close()
        self.follow(reason)
        while self.channels:
            await asyncio.sleep(0.01)


class _FrontChannel(Channel):
    """The connection of one front.

    Its questions have growing ids, so a repeated frame is noticed.
    """

    def __init__(self, endpoint: FrontEndpoint) -> None:
        super().__init__(leader_opening(0))
        self._endpoint = endpoint
        self._front: str | None = None
        self._last = -1  # the last question's id
        self._tasks: set[asyncio.Future[Any]] = set()
        self._waiting: dict[int, asyncio.Future[Any]] = {}  # handlers, or turns
        self._weight = 0

    def opened(self) -> None:
        """Wait for the hello."""
        self._endpoint.channels.add(self)
        self._greeting = self._loop.call_later(_GREETING_SECONDS, self.close, "it did not say who it is")
        if len(self._endpoint.channels) > _MOST_FRONTS:
            self.dismiss(Farewell(kind="refused", reason=f"there are {_MOST_FRONTS} connections already"))

    def received(self, head: bytes, bodies: memoryview) -> None:
        """Begin to answer the questions of a frame."""
        for message in read_asked(head, bodies):
            number, question = message.id, message.content
            if number <= self._last:
                raise ProtocolError(f"the id {number} came after {self._last}")
            self._last = number
            if isinstance(question, Hello) or self._front is None:
                self._greet(question)
            elif not isinstance(question, StopWaiting):
                self._begin(number, question)
            elif (waiting := self._waiting.get(question.question)) is not None:
                waiting.cancel()
            if self.is_closing:
                return

    def lost(self, problem: str) -> None:
        """End what only this front waited for."""
        self._greeting.cancel()
        self._endpoint.channels.discard(self)
        self._endpoint.orphaned += self._weight
        level = logging.DEBUG if self._endpoint.epoch is None else logging.WARNING  # fronts knock often at a standby
        event("front_lost", level, front=self._front, problem=problem)
        self._leave()

    def dismiss(self, farewell: Farewell) -> None:
        """Say why, and close the connection."""
        self.send(*told(None, farewell))
        self.close(farewell.reason)

    def _greet(self, hello: BaseModel) -> None:
        if not isinstance(hello, Hello) or self._front is not None:
            raise ProtocolError("the first message, and no other, must be a hello")
        problem = None
        if hello.protocol != INTERNAL_PROTOCOL:
            ours, theirs = INTERNAL_PROTOCOL, hello.protocol
            problem = f"this server speaks version {ours}, the front {theirs}: install the same Offbeat on both"
        elif self._endpoint.orphaned > LARGEST_FRONT_WEIGHT:
            problem = "too many questions of lost connections wait for their answers"
        if problem is not None:
            self.dismiss(Farewell(kind="refused", reason=problem))
        elif self._endpoint.epoch is None:
            self.dismiss(Farewell(kind="follows", reason="it does not lead"))
        else:
            if (old := self._endpoint.fronts.get(hello.front)) is not None:
                old.close("its front has connected again")
                old._leave()
            self._front = hello.front
            self._endpoint.fronts[hello.front] = self
            self._greeting.cancel()
            self.trust(leader_opening(self._endpoint.epoch))
            self.send(*told(None, Welcome(run=self._endpoint.run)))
            event("front_connected", front=hello.front)

    def _leave(self) -> None:
        for waiting in self._waiting.values():
            waiting.cancel()
        if self._front is not None and self._endpoint.fronts.get(self._front) is self:
            del self._endpoint.fronts[self._front]

    def _begin(self, number: int, question: Question[Any], *, has_waited: bool = False) -> None:
        size = weight(question)
        if self._weight + size > LARGEST_WEIGHT:
            raise ProtocolError("too many questions wait for their answers")
        self._weight += size
        task = self._loop.create_task(self._answer(number, question, has_waited))
        self._tasks.add(task)
        if isinstance(question, WaitingQuestion):
            self._waiting[number] = task
        task.add_done_callback(partial(self._end, number, question))

    def _end(self, number: int, question: Question[Any], ended: "asyncio.Future[Any]") -> None:
        """Count a question no longer, unless it waits for its turn."""
        self._tasks.discard(ended)
        self._waiting.pop(number, None)
        turn = None if ended.cancelled() else ended.result()
        is_open = self in self._endpoint.channels
        if turn is not None and is_open:
            self._waiting[number] = turn
            turn.add_done_callback(partial(self._go_on, number, question))
            return
        if turn is not None:
            turn.cancel()
        self._weight -= weight(question)
        if not is_open:
            self._endpoint.orphaned -= weight(question)

    def _go_on(self, number: int, question: Question[Any], turn: "asyncio.Future[None]") -> None:
        self._end(number, question, turn)
        if not (turn.cancelled() or self.is_closing):
            self._begin(number, question, has_waited=True)

    async def _answer(self, number: int, question: Question[Any], has_waited: bool) -> "asyncio.Future[None] | None":
        try:
            answer = await self._endpoint.handler(question, has_waited)
            if isinstance(answer, asyncio.Future):
                return answer
            assert isinstance(answer, question.answer)
            encoded = told(number, answer)
        except Refusal as refusal:
            encoded = told(number, Refused.of(refusal))
        except Exception as error:
            lines = "".join(traceback.format_exception(error))
            event("question_failed", logging.ERROR, question=type(question).__name__, trace=lines[-4000:])
            failure = Refusal("busy", "the server failed to answer: its log says why", {"Retry-After": "5"})
            encoded = told(number, Refused.of(failure))
        self.send(*encoded)
        return None


def _check_private(folder: Path) -> None:
    """Make a folder that only this user may enter, or check that it is one."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.stat()
    if stat.S_IMODE(found.st_mode) & 0o077 or found.st_uid != os.geteuid():
        raise OffbeatError(f"others may enter {folder}, where the fronts' socket is to be: chmod 700 {folder}")
