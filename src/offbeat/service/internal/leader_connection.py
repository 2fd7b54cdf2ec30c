"""A front's end: it finds the leader, asks it, and asks again after a break."""

import asyncio
import logging
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from offbeat_core.errors import OffbeatError
from offbeat_core.serving.certificates import Certificates
from offbeat_core.serving.console_log import event
from pydantic import BaseModel

from offbeat.service.internal.channel import Address, shown
from offbeat.service.internal.internal_certificates import LEADER_NAME, front_context
from offbeat.service.internal.leader_channel import LeaderChannel, PendingQuestion, Unsent, busy
from offbeat.service.internal.questions import (
    INTERNAL_PROTOCOL,
    LARGEST_FRONT_WEIGHT,
    Forward,
    Hello,
    Question,
    WaitingQuestion,
    weight,
)

_ANSWER_SECONDS = 20.0  # until a question is refused, unless it waits
_PATIENCE_SECONDS = 2.0  # for which new questions wait for a leader; later ones are refused at once
# For a connection and the leader's first message: at first less, so that a dead machine does not keep a front from the
# next leader; then more, for a leader that is slow.
_OPEN_SECONDS = (0.5, 0.5, 1.0, 2.0)
_SWEEP_SECONDS = 1.0
_PAUSES = (0.1, 0.2, 0.3)  # seconds between two rounds of all addresses
_MOST_SENDS = 3  # a question after which the leader is lost each time may be the reason

A = TypeVar("A", bound=BaseModel)


class LeaderConnection:
    """Asks the leader of a run; ``run`` keeps the connection.

    Args:
        addresses: Where the leader may be. They are tried in turn; where a server leads the connection stays.
        certificates: The front's, for TLS; they are read anew for each connection.

    Attributes:
        epoch: The newest epoch of a leader so far. What comes from an older one is not accepted.
        run_id: The run's id; None before the first leader. A leader of another run is not accepted.
        found: Set once the first leader has accepted the connection.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        certificates: Certificates | None = None,
    ) -> None:
        self.epoch = 0
        self.run_id: str | None = None
        self._addresses = addresses
        self._hello = Hello(protocol=INTERNAL_PROTOCOL, front=secrets.token_hex(16))
        self._certificates = certificates
        self.found = asyncio.Event()
        self._channel: LeaderChannel | None = None
        self._unsent: list[PendingQuestion] = []
        self._weight = 0
        self._loop = asyncio.get_running_loop()
        self._patient_until = self._loop.time() + _PATIENCE_SECONDS
        self._problems: dict[Address, str] = {}  # the last of each address

    @property
    def is_connected(self) -> bool:
        """True if a leader has accepted the connection."""
        return self._channel is not None

    async def ask(self, question: Question[A]) -> A:
        """Return the leader's answer.

        A question that was sent when the connection broke is sent again to the next leader, unless it is a forwarded
        request that may change something. Any other may be repeated: some change nothing, a lease can be renewed or
        given up twice, and an update or an evaluation that the leader knows already, by client, visit and digest, gets
        the same receipt. A check-in whose ``ask`` is cancelled ends at the leader; other questions are carried out.

        Raises:
            Refusal: The leader's. Or ``busy``: there is no leader, no answer in time, or too many questions wait;
                ``Unsent`` if no leader has received it.
        """
        if self._channel is None and self._loop.time() > self._patient_until:
            raise busy("the server that leads cannot be reached", Unsent)
        size, largest = weight(question), LARGEST_FRONT_WEIGHT
        if isinstance(question, Forward):
            largest //= 2  # so that these, which weigh much, leave room for others
        if self._weight + size > largest:
            raise busy("too many requests wait for the server that leads", Unsent)
        waits = question.wait_seconds if isinstance(question, WaitingQuestion) else 0.0
        deadline = self._loop.time() + _ANSWER_SECONDS + waits
        pending = PendingQuestion(question, self._loop.create_future(), deadline, size)
        self._weight += size
        if self._channel is None:
            self._unsent.append(pending)
        else:
            self._channel.ask(pending)
        try:
            return await pending.future
        except asyncio.CancelledError:
            self._stop(pending)
            raise

    async def run(self) -> None:
        """Keep a connection to the leader, until cancelled."""
        sweeping = self._loop.create_task(self._sweep())
        failures = 0
        try:
            while True:
                for address in self._addresses:
                    if await self._stay_at(address, _OPEN_SECONDS[min(failures, len(_OPEN_SECONDS) - 1)]):
                        failures = 0
                await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1
        finally:
            sweeping.cancel()
            self._patient_until = -1.0
            for pending in self._unsent:
                pending.refuse(busy("this server is being stopped"))

    async def _stay_at(self, address: Address, seconds: float) -> bool:
        """Connect in time, and wait for the end; return whether a leader had accepted."""
        channel = LeaderChannel(self._hello, self)
        try:
            async with asyncio.timeout(seconds):
                await self._open(address, channel)
                await channel.greeted.wait()
            if channel.is_accepted:
                event("leader_found", address=shown(address), epoch=self.epoch)
            await channel.ended.wait()
            problem = channel.problem
        except (OSError, OffbeatError, TimeoutError) as error:
            problem = str(error) or "it does not answer"
        finally:
            channel.close("this end has given up")
            self.lose(channel, list(channel.pending.values()))
        if channel.is_accepted or problem != self._problems.get(address):
            event("no_leader", logging.WARNING, address=shown(address), problem=problem)
        self._problems[address] = problem
        return channel.is_accepted

    async def _open(self, address: Address, channel: LeaderChannel) -> None:
        if isinstance(address, Path):
            await self._loop.create_unix_connection(lambda: channel, str(address))
            return
        assert self._certificates is not None, "TLS needs certificates"
        context = front_context(self._certificates)
        host, port = address
        await self._loop.create_connection(
            lambda: channel, host, port, ssl=context, server_hostname=LEADER_NAME, ssl_shutdown_timeout=1.0
        )

    def accept(self, channel: LeaderChannel, epoch: int) -> None:
        """Ask this leader from now on, first what waits."""
        self.epoch = epoch
        self._channel = channel
        self.found.set()
        unsent, self._unsent = self._unsent, []
        for pending in unsent:
            pending.shorten_wait(pending.deadline - _ANSWER_SECONDS - self._loop.time())
            channel.ask(pending)

    def lose(self, channel: LeaderChannel, pending: Sequence[PendingQuestion]) -> None:
        """Keep the questions of a closed connection for the next."""
        channel.pending = {}
        if self._channel is channel:
            self._channel = None
            self._patient_until = self._loop.time() + _PATIENCE_SECONDS
        for each in pending:
            if each.sends >= _MOST_SENDS or (isinstance(each.question, Forward) and each.question.method != "GET"):
                each.refuse(busy("the server that leads was lost before it answered"))
        self._unsent += pending
        self._drop_done()

    def release(self, pending: PendingQuestion) -> None:
        """Count a question no longer."""
        self._weight -= pending.weight

    def _stop(self, pending: PendingQuestion) -> None:
        if self._channel is not None:
            self._channel.stop(pending)
        self._drop_done()

    def _drop_done(self) -> None:
        for pending in self._unsent:
            if pending.future.done():
                self.release(pending)
        self._unsent = [pending for pending in self._unsent if not pending.future.done()]

    async def _sweep(self) -> None:
        """Refuse questions without an answer in time, again and again."""
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            sent = self._channel.pending.values() if self._channel is not None else ()
            late = [pending for pending in (*sent, *self._unsent) if self._loop.time() > pending.deadline]
            for pending in late:
                pending.refuse(busy("the server that leads does not answer"))
                self._stop(pending)
