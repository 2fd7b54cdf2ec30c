"""Clients of the simulated cluster, and an admin: they ask again until they are answered."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from offbeat_core import messages
from offbeat_core.tokens import new_token, token_hash
from safetensors.numpy import save

from offbeat.service.front.front import Caller, UploadRequest
from offbeat.service.internal.questions import Download, GiveUp, RenewLease
from offbeat.service.updates.update_header import UpdateHeader
from tests.cluster.network import Answer, LostError
from tests.cluster.server import LENGTH, PLAN, Operation, Served

if TYPE_CHECKING:
    from tests.cluster.world import World


class Client:
    """A client that enrols, works, and passes all answers on to the promises."""

    def __init__(self, world: "World", random: Random) -> None:
        self.number: int | None = None
        self.token = new_token("obc_")
        self.caller = Caller(token_hash(self.token), lambda: None, messages.PROTOCOL)
        self.is_revoked = False
        self._world = world
        self._random = random
        self._promises = world.promises

    async def work(self) -> None:
        """Take part until the world ends."""
        await self._enrol()
        visit: messages.VisitMessage | None = None
        while not self.is_revoked:
            if visit is None:
                visit = await self._check_in()
            if visit is not None:
                visit = await self._train(visit)
            await self._pause(0.1)

    async def probe(self) -> None:
        """Check in without waiting, once the world is healed."""
        while self.number is None:
            await self._pause(0.1)
        await self._ask("probe", self._checking_in(0.0), self._hear_visit)

    async def _enrol(self) -> None:
        while not self._world.enrolment_tokens:
            await self._pause(0.1)
        enrolment = messages.Enrolment(name=self.token[-4:], token=self.token, examples=10)

        async def enrol(served: Served) -> Any:
            assert served.service is not None
            return await served.service.enrol(self._world.enrolment_tokens[0], enrolment)

        def hear(enrolled: messages.Enrolled) -> None:
            self.number = enrolled.client
            self._promises.enrolled(self.token, enrolled.client)

        await self._ask("enrol", enrol, hear, is_for_server=True)

    def _checking_in(self, wait_seconds: float) -> Operation:
        async def check_in(served: Served) -> Any:
            return await served.front.check_in(self.caller, wait_seconds)

        return check_in

    async def _check_in(self) -> messages.VisitMessage | None:
        is_settled, began = self._world.is_settled, self._world.loop.time()
        wait_seconds = self._random.choice((0.0, 4.0 if is_settled else 0.5))

        def hear(checked_in: messages.CheckedIn) -> None:
            self._hear_visit(checked_in)
            if is_settled and self.number is not None and checked_in.visit is not None:
                self._promises.woken(self.number, began)

        answer = await self._ask("check in", self._checking_in(wait_seconds), hear)
        return None if answer is None else answer.visit

    def _hear_visit(self, checked_in: messages.CheckedIn) -> None:
        if checked_in.finished:
            self._promises.finished()
        if checked_in.visit is not None:
            assert self.number is not None
            self._promises.assigned(self.number, checked_in.visit)

    async def _train(self, visit: messages.VisitMessage) -> messages.VisitMessage | None:
        """Do the work of a visit, or a part of it; return the next one, if it comes with the receipt."""
        if self._happens(0.3):
            await self._download(visit)
        if self._happens(0.3):
            await self._renew(visit)
        await self._pause(0.15)
        match self._random.choices(("upload", "forget", "give up"), (10, 1, 1))[0]:
            case "forget":
                return None
            case "give up":
                await self._give_up(visit)
                return None
            case _:
                pass
        if self._happens(0.2):
            await self._renew(visit)
        if self._happens(0.2) and not await self._offer(visit):
            return None
        following = await self._upload(visit)
        if self._happens(0.2):
            await self._pause(0.5)
            await self._upload(visit)
        return following

    async def watch(self) -> None:
        """Download the newest version again and again."""
        while not self.is_revoked:
            await self._pause(0.2)
            if self.number is not None:
                await self._download()

    async def _download(self, visit: messages.VisitMessage | None = None) -> None:
        wanted = None if visit is None else visit.version

        async def download(served: Served) -> tuple[int, bytes]:
            is_elsewhere = served.front.is_elsewhere
            question = Download(token=self.caller.token, version=wanted, is_elsewhere=is_elsewhere)
            found = await served.front.ask(self.caller, question)
            return found.version, (await served.front.model(found)).read_bytes()

        def hear(found: tuple[int, bytes]) -> None:
            self._promises.downloaded(*found)

        await self._ask("download", download, hear, visit, version=str(wanted))

    async def _renew(self, visit: messages.VisitMessage) -> None:
        async def renew(served: Served) -> Any:
            return await served.front.ask(self.caller, RenewLease(token=self.caller.token, visit=visit.number))

        await self._ask("renew", renew, _ignore, visit)

    async def _give_up(self, visit: messages.VisitMessage) -> None:
        async def give_up(served: Served) -> Any:
            await served.front.ask(self.caller, GiveUp(token=self.caller.token, visit=visit.number))

        await self._ask("give up", give_up, _ignore, visit)

    async def _offer(self, visit: messages.VisitMessage) -> bool:
        async def offer(served: Served) -> Any:
            return await served.front.upload_state(self.caller, visit.number)

        def hear(state: messages.UploadState) -> None:
            if state.receipt is not None:
                self._hear_receipt(visit, state.receipt, state.audit_head)

        answer = await self._ask("offer", offer, hear, visit)
        return answer is not None and answer.wanted

    async def _upload(self, visit: messages.VisitMessage) -> messages.VisitMessage | None:
        assert self.number is not None
        body = body_of(self.number, visit.number)
        digest = hashlib.sha256(body).hexdigest()
        self._promises.sends(self.number, visit.number, digest)
        header = UpdateHeader(
            version=visit.version,
            bytes=len(body),
            sha256=digest,
            model_sha256=visit.model_sha256,
            examples=10,
            steps=PLAN.steps,
            normaliser=float(PLAN.steps),
            since=visit.since,
        )
        checks_in, offset = self._happens(0.5), 0

        async def upload(served: Served) -> Any:
            length = len(body) - offset
            pieces = self._pieces(body[offset:])
            return await served.front.upload(
                UploadRequest(self.caller, visit.number, header, offset, length, pieces, check_in=checks_in)
            )

        def hear(received: messages.Received) -> None:
            self._hear_receipt(visit, received.receipt, received.audit_head)
            if received.next is not None:
                self._hear_visit(received.next)

        answer = await self._ask("upload", upload, hear, visit)
        return None if answer is None or answer.next is None else answer.next.visit

    async def _pieces(self, body: bytes) -> AsyncIterator[bytes]:
        middle = self._random.randrange(len(body))
        yield body[:middle]
        if self._happens(0.3):
            await asyncio.sleep(self._random.expovariate(10))
        yield body[middle:]

    def _hear_receipt(self, visit: messages.VisitMessage, receipt: messages.ReceiptMessage, head: str | None) -> None:
        assert self.number is not None
        self._promises.told_head(head)
        self._promises.received(self.number, visit.number, receipt)

    async def _ask(
        self,
        what: str,
        operation: Operation,
        hear: Callable[[Any], None],
        visit: messages.VisitMessage | None = None,
        *,
        is_for_server: bool = False,
        **path_parameters: str,
    ) -> Any:
        """Ask until there is an answer that another attempt would not change.

        Returns its body, None for a refusal. ``hear`` gets the body of every answer, also of one that comes too late.
        """
        while True:
            heard = partial(self._hear, what, hear, visit, self._world.loop.time())
            patience = self._random.choice((1.5, 1.5, 5.0))
            try:
                answer = await self._world.network.ask(
                    operation, patience, heard, is_for_server=is_for_server, **path_parameters
                )
            except LostError:
                self._world.trace(f"client {self.number}", what, outcome="lost")
                await self._pause(0.1)
                continue
            if not _is_temporary(answer):
                return answer.body if answer.status < 400 else None
            await self._pause(0.15)

    def _hear(
        self,
        what: str,
        hear: Callable[[Any], None],
        visit: messages.VisitMessage | None,
        began: float,
        answer: Answer,
    ) -> None:
        """Check an answer to a question that was sent when it ``began``."""
        shown = answer.body if answer.status < 400 else (answer.body["kind"], answer.body["detail"])
        self._world.trace(f"client {self.number}", what, server=answer.server, status=answer.status, body=shown)
        if answer.status < 400:
            hear(answer.body)
            if self.number is not None:
                self._promises.admitted(self.number, began, what, answer.server)
        elif not _is_temporary(answer):
            kind = answer.body["kind"]
            self.is_revoked = self.is_revoked or kind == "revoked-token"
            self._promises.denied(self.number, visit and visit.number, what, kind, answer.body["detail"])

    async def _pause(self, mean_seconds: float) -> None:
        await asyncio.sleep(self._random.expovariate(1 / mean_seconds))

    def _happens(self, probability: float) -> bool:
        return self._random.random() < probability


def _is_temporary(answer: Answer) -> bool:
    """Return whether another attempt may be answered otherwise: also if two were in each other's way."""
    return answer.status in (429, 503) or (answer.status == 409 and answer.body["kind"] == "wrong-offset")


def _ignore(answer: Any) -> None:
    pass


def body_of(client: int, visit: int) -> bytes:
    """Return the update of a visit."""
    return save({"update": np.random.default_rng([client, visit]).normal(size=LENGTH).astype(np.float32)})
