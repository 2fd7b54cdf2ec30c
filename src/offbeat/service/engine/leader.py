"""The leader's answers to the questions of fronts."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from offbeat.coordinator import Assignment
from offbeat.service.engine.client_support import lacks, supported
from offbeat.service.engine.operations import Operations
from offbeat.service.engine.update_admission import CheckedUpdate, Decision
from offbeat.service.engine.waiting_clients import Turn
from offbeat.service.internal import questions
from offbeat.service.internal.answers import (
    BodyCheck,
    CheckInAnswer,
    Done,
    DownloadPermission,
    HandInAnswer,
    OfferAnswer,
    UploadPermission,
)
from offbeat.service.refusal import Refusal
from offbeat.service.store.shared_files import SharedFiles, model_name

A = TypeVar("A", bound=BaseModel)


class Leader:
    """Authenticates, orders and decides; never reads a body."""

    def __init__(self, service: Operations) -> None:
        self._service = service
        self._stored: dict[int, asyncio.Future[None]] = {}  # by version, for fronts on other machines
        self._answers: dict[type, Callable[[Any], Coroutine[Any, Any, BaseModel | Turn]]] = {
            questions.CheckIn: self._check_in,
            questions.Offer: self._offer,
            questions.MayUpload: self._may_upload,
            questions.HandIn: self._hand_in,
            questions.RenewLease: self._renew_lease,
            questions.GiveUp: self._give_up,
            questions.Download: self._download,
            questions.HandInEvaluation: self._hand_in_evaluation,
        }

    async def ask(self, question: questions.Question[A]) -> A:
        """Return the answer to a question; ``Refusal``.

        All rows that it depends on are in the log then.
        """
        while isinstance(answer := await self.begin(question), asyncio.Future):
            await answer
        return answer

    async def begin(self, question: questions.Question[A]) -> A | Turn:
        """Return the answer to a question; its turn if it is to be asked again then."""
        answer: Any = await self._answers[type(question)](question)
        return answer

    async def _check_in(self, asked: questions.CheckIn) -> CheckInAnswer | Turn:
        # A client that waits is woken at the stop, and answered that there is no work.
        client = self._service.client(asked.token, may_stop=asked.waits)
        if (missing := self._hear(client, asked)) is not None:
            raise Refusal("not-supported", missing)
        found = await self._service.check_in(client, may_wait=asked.waits)
        if isinstance(found, asyncio.Future):
            return found
        checked_in, assignment = found
        return CheckInAnswer(checked_in=checked_in, check=self._check_of(assignment))

    def _hear(self, client: int, asked: questions.CheckIn | questions.HandIn) -> str | None:
        """Note that a client is there; return what it lacks for the run's visits, or None."""
        self._service.hear(client, can_evaluate="evaluate" in supported(asked.supports))
        engine = self._service.engine
        return lacks(engine.coordinator, asked.protocol, asked.supports, is_masked=engine.shares is not None)

    async def _offer(self, asked: questions.Offer) -> OfferAnswer:
        client = self._service.client(asked.token)
        return OfferAnswer(client=client, state=await self._service.offer(client, asked.visit))

    async def _may_upload(self, asked: questions.MayUpload) -> UploadPermission:
        client = self._service.client(asked.token)
        found = await self._service.admission.permit(client, asked.visit, asked.header)
        if isinstance(found, Decision):
            return UploadPermission(client=client, received=self._service.received(client, found))
        return UploadPermission(client=client, check=found)

    async def _hand_in(self, asked: questions.HandIn) -> HandInAnswer:
        # A large body was permitted before, and may arrive while the server stops.
        try:
            client = self._service.client(asked.token, may_stop=asked.blob is not None)
        except Refusal:  # of a client that was revoked in the meantime
            self._service.admission.delete_unused(asked.blob)
            raise
        if asked.blob is not None and not asked.blob.startswith(f"{client}-{asked.visit}-"):
            raise Refusal("malformed-request", f"the file {asked.blob} is not of visit {asked.visit} of this client")
        # A client that lacks what the algorithm needs gets no visit, and the reason when it checks in.
        check_in = self._hear(client, asked) is None and asked.check_in
        update = CheckedUpdate(client, asked.visit, asked.header, asked.norm, asked.body, asked.blob, check_in)
        decision = await self._service.hand_in(update)
        received = self._service.received(client, decision, check_in=check_in)
        if received.next is not None and received.next.finished:
            await self._service.engine.confirm()
        return HandInAnswer(received=received, check=self._check_of(decision.assignment))

    def _check_of(self, assignment: Assignment | None) -> BodyCheck | None:
        return None if assignment is None else self._service.admission.check_of(assignment)

    async def _renew_lease(self, asked: questions.RenewLease) -> BaseModel:
        return await self._service.heartbeat(self._service.client(asked.token), asked.visit)

    async def _give_up(self, asked: questions.GiveUp) -> Done:
        await self._service.engine.give_up(self._service.client(asked.token), asked.visit)
        return Done()

    async def _hand_in_evaluation(self, asked: questions.HandInEvaluation) -> BaseModel:
        return await self._service.evaluated(self._service.client(asked.token), asked.version, asked.result)

    async def _download(self, asked: questions.Download) -> DownloadPermission:
        engine = self._service.engine
        if asked.by_admin:
            self._service.accounts.check_hash(asked.token, "admin")
        else:
            self._service.client(asked.token)
        version = max(engine.models.versions()) if asked.version is None else asked.version
        path = engine.models.path(version)
        try:
            digest, size = engine.models.digest(version), path.stat().st_size
        except FileNotFoundError:
            raise Refusal("no-such-version", f"version {version} is not kept: check in for new work") from None
        if asked.is_elsewhere and engine.shared is not None:
            try:
                await self._share(engine.shared, version, path, digest)
            except OSError as error:
                raise engine.disk.refusal(error) from None
        if asked.known != f'"{digest}"':
            self._service.metrics.download_bytes.inc(size)
        name = f"{engine.coordinator.algorithm.name}-{version}.safetensors"
        return DownloadPermission(version=version, sha256=digest, name=name)

    async def _share(self, shared: SharedFiles, version: int, path: Path, digest: str) -> None:
        """Store a version for fronts on other machines, once for all downloads."""
        kept = self._service.engine.models.versions()
        self._stored = {other: done for other, done in self._stored.items() if other in kept}
        stored = self._stored.get(version)
        if stored is None or (stored.done() and (stored.cancelled() or stored.exception() is not None)):
            stored = asyncio.ensure_future(shared.upload(path, model_name(version, digest)))
            self._stored[version] = stored
        await asyncio.shield(stored)
