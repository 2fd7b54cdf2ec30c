"""One connection of a front to a server that may lead, and the questions on it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel

from offbeat.service.internal.answers import Farewell, Refused, Welcome
from offbeat.service.internal.batches import FRONT_OPENING, ProtocolError, asked, read_told
from offbeat.service.internal.channel import Channel
from offbeat.service.internal.questions import Hello, Question, StopWaiting, WaitingQuestion
from offbeat.service.refusal import Refusal


class Unsent(Refusal):
    """The refusal of a question that no leader has received."""


def busy(reason: str, of: type[Refusal] = Refusal) -> Refusal:
    """Return the refusal of a question that the leader cannot answer now."""
    return of("busy", f"{reason}; try again later", {"Retry-After": "2"})


@dataclass(slots=True, eq=False)
class PendingQuestion:
    """A question that waits for its answer."""

    question: Question[Any]
    future: "asyncio.Future[Any]"
    deadline: float
    weight: int
    number: int = 0  # its id on the present connection
    sends: int = 0

    def shorten_wait(self, seconds: float) -> None:
        """Let the question wait only for the rest of its time, if it waits."""
        if isinstance(self.question, WaitingQuestion):
            self.question = self.question.model_copy(update={"wait_seconds": max(0.0, seconds)})

    def refuse(self, refusal: Refusal) -> None:
        """Refuse the question, unless it has its answer."""
        if not self.future.done():
            self.future.set_exception(refusal if self.sends else Unsent(*refusal.args))


class Owner(Protocol):
    """The receiver of what a connection brings.

    ``epoch`` is the newest one that is known, ``run_id`` that of the first leader's run.
    """

    epoch: int
    run_id: str | None

    def accept(self, channel: "LeaderChannel", epoch: int) -> None:
        """Use the connection: it is to the leader."""

    def release(self, pending: PendingQuestion) -> None:
        """Count a question no longer."""

    def lose(self, channel: "LeaderChannel", pending: Sequence[PendingQuestion]) -> None:
        """Take back the questions of a connection that is closed."""


class LeaderChannel(Channel):
    """A connection: it is accepted once the other end has said that it leads.

    Attributes:
        pending: The questions without an answer, by id; also such for which nobody waits any more.
        greeted: Set when the connection is accepted, or closed.
        ended: Set when it is closed, because of ``problem``.
    """

    def __init__(self, hello: Hello, owner: Owner) -> None:
        super().__init__(FRONT_OPENING)
        self.is_accepted = False
        self.pending: dict[int, PendingQuestion] = {}
        self.greeted = asyncio.Event()
        self.ended = asyncio.Event()
        self.problem = ""
        self._hello = hello
        self._owner = owner
        self._last = 0  # the last id

    def ask(self, pending: PendingQuestion) -> None:
        """Send a question."""
        try:
            self._send(pending.question)
        except Refusal as refusal:
            pending.refuse(refusal)
            self._owner.release(pending)
            return
        pending.sends += 1
        pending.number = self._last
        self.pending[self._last] = pending

    def stop(self, pending: PendingQuestion) -> None:
        """Tell the leader that nobody waits for the answer, if it waits."""
        if isinstance(pending.question, WaitingQuestion) and self.pending.get(pending.number) is pending:
            del self.pending[pending.number]
            self._owner.release(pending)
            self._send(StopWaiting(question=pending.number))

    def opened(self) -> None:  # noqa: D102
        self._send(self._hello)

    def received(self, head: bytes, bodies: memoryview) -> None:  # noqa: D102
        epoch, messages = read_told(head, bodies)
        for message in messages:
            content = message.content
            if isinstance(content, Farewell):
                self.close(f"{content.kind}: {content.reason}")
                return
            if epoch < self._owner.epoch or (self.is_accepted and epoch > self._owner.epoch):
                raise ProtocolError(f"it speaks for epoch {epoch}, and epoch {self._owner.epoch} has begun")
            if isinstance(content, Welcome) == self.is_accepted:
                raise ProtocolError("the first message, and no other, must be a welcome")
            if isinstance(content, Welcome):
                if content.run != (self._owner.run_id or content.run):
                    raise ProtocolError("it leads another run: start this front again")
                self._owner.run_id = content.run
                self.is_accepted = True
                self.trust(FRONT_OPENING)
                self._owner.accept(self, epoch)
                self.greeted.set()
            else:
                self._resolve(message.id, content)

    def lost(self, problem: str) -> None:  # noqa: D102
        self.problem = problem
        self.greeted.set()
        self.ended.set()
        self._owner.lose(self, list(self.pending.values()))

    def _send(self, message: BaseModel) -> None:
        part = asked(self._last + 1, message)
        self._last += 1
        self.send(*part)

    def _resolve(self, number: int | None, content: BaseModel) -> None:
        if number is None or not 0 < number <= self._last:
            raise ProtocolError(f"it answers question {number}, which was not asked")
        pending = self.pending.get(number)
        if pending is None:  # nobody waits for it any more
            return
        if not isinstance(content, Refused | pending.question.answer):
            raise ProtocolError(f"it answers a {type(pending.question).__name__} with a {type(content).__name__}")
        del self.pending[number]
        self._owner.release(pending)
        if isinstance(content, Refused):
            pending.refuse(content.refusal())
        elif not pending.future.done():
            pending.future.set_result(content)
