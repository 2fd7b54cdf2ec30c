"""The leader's answers to the questions of fronts."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from offbeat_core import messages
from offbeat_core.errors import OffbeatError
from offbeat_core.serving.console_log import event
from pydantic import BaseModel

from offbeat.client_metrics import ClientResult
from offbeat.coordinator import Receipt, Unknown
from offbeat.service.engine.client_support import lacks
from offbeat.service.engine.operations import Operations
from offbeat.service.engine.update_checks import UpdateChecks
from offbeat.service.engine.update_intake import UpdateIntake
from offbeat.service.engine.visit_messages import receipt_message
from offbeat.service.engine.waiting_clients import Turn
from offbeat.service.internal import questions
from offbeat.service.internal.answers import (
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
        self._engine = service.engine
        self._visits = service.visits
        self._checks = UpdateChecks(service.engine, service.accounts, service.settings.service.max_update_norm)
        self._intake = UpdateIntake(service.engine, service.accounts, self._checks)
        self._stored: dict[int, asyncio.Future[None]] = {}  # by version, for fronts on other machines
        self._answers: dict[type, Callable[[Any], Coroutine[Any, Any, BaseModel]]] = {
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
        answer: Any = await self.begin(question)
        if isinstance(answer, asyncio.Future):
            await answer
            answer = await self.begin(question, has_waited=True)
        return answer

    async def begin(self, question: questions.Question[A], *, has_waited: bool = False) -> A | Turn:
        """Return the answer to a question, or its turn.

        After its turn it is to be asked again, for the last time.
        """
        answer: Any
        if isinstance(question, questions.CheckIn):
            answer = await self._check_in(question, 0.0 if has_waited else question.wait_seconds)
        else:
            answer = await self._answers[type(question)](question)
        return answer

    async def _check_in(self, asked: questions.CheckIn, wait_seconds: float) -> CheckInAnswer | Turn:
        # A client that waits is woken at the stop, and answered that there is no work.
        client = self._service.client(asked.token, may_stop=asked.wait_seconds > 0)
        if (missing := self._hear(client, asked)) is not None:
            raise Refusal("not-supported", missing)
        await self._know_steps(client)
        await self._know_budget(client)
        assignment = await self._engine.check_in(client, wait_seconds)
        if isinstance(assignment, asyncio.Future):
            return assignment
        checked_in = self._visits.checked_in(client, assignment)
        if checked_in.finished:
            await self._engine.confirm()
        return CheckInAnswer(checked_in=checked_in, check=assignment and self._checks.of_body(assignment))

    def _hear(self, client: int, asked: questions.CheckIn | questions.HandIn) -> str | None:
        """Note that a client is there; return what it lacks for the run's visits, or None."""
        if self._engine.client_evaluations is not None:
            self._engine.client_evaluations.hear(client, can_evaluate="evaluate" in questions.supported(asked.supports))
        is_masked = self._engine.shares is not None
        return lacks(self._engine.coordinator, asked.protocol, asked.supports, is_masked=is_masked)

    async def _know_steps(self, client: int) -> None:
        """Record how many steps a client takes where its examples tell; ``Refusal``."""
        coordinator, examples = self._engine.coordinator, self._service.accounts.examples.of(client)
        if not (coordinator.waits_for_examples or coordinator.needs_steps(client)):
            return
        if examples is None:
            what = "weighs every client" if coordinator.waits_for_examples else "plans a client's steps"
            raise Refusal(
                "no-examples",
                f"this run {what} by its examples: declare how many you hold (POST /v1/examples; in Python the "
                "attribute `examples` of the client)",
            )
        if not coordinator.needs_steps(client):
            return
        try:
            steps = coordinator.local.of(examples).steps
        except (OffbeatError, ValueError) as error:
            event("no_steps", logging.WARNING, client=client, problem=str(error))
            raise Refusal(
                "wrong-examples", f"this run has no number of steps for {examples} examples: tell its operator"
            ) from None
        await self._engine.note_steps(client, steps)

    async def _know_budget(self, client: int) -> None:
        """Limit a client's participations for what it spent in earlier runs."""
        privacy, participation = self._service.settings.privacy, self._engine.coordinator.participation
        if privacy is None or privacy.budget is None or participation is None:
            return
        most = privacy.most_participations(self._service.accounts.sites[client].identity)
        if most is not None and most < participation.limit_of(client):
            await self._engine.limit_participation(client, most)

    async def _offer(self, asked: questions.Offer) -> OfferAnswer:
        client = self._service.client(asked.token)
        receipt, share = await self._engine.offer(client, asked.visit)
        if receipt is None:
            state = messages.UploadState(wanted=True, offset=0, receipt=None, share=share)
        else:
            told = receipt_message(receipt)
            state = messages.UploadState(wanted=False, offset=0, receipt=told, audit_head=self._head)
        return OfferAnswer(client=client, state=state)

    async def _may_upload(self, asked: questions.MayUpload) -> UploadPermission:
        client = self._service.client(asked.token)
        assignment = await self._checks.fitting_visit(client, asked.visit, asked.header)
        if assignment is None:
            receipt = await self._intake.repeated(client, asked.visit, asked.header)
            return UploadPermission(client=client, received=self._received(receipt))
        self._engine.log_writer.check()
        return UploadPermission(client=client, check=self._checks.of_body(assignment))

    async def _hand_in(self, asked: questions.HandIn) -> HandInAnswer:
        # A large body was permitted before, and may arrive while the server stops.
        try:
            client = self._service.client(asked.token, may_stop=asked.blob is not None)
        except Refusal:  # of a client that was revoked in the meantime
            self._intake.delete_unused(asked.blob)
            raise
        if asked.blob is not None and not asked.blob.startswith(f"{client}-{asked.visit}-"):
            raise Refusal("malformed-request", f"the file {asked.blob} is not of visit {asked.visit} of this client")
        await self._know_budget(client)  # for its next visit
        # A client that lacks what the algorithm needs gets no visit, and the reason when it checks in.
        check_in = self._hear(client, asked) is None and asked.check_in
        receipt, assignment, is_new = await self._intake.take(client, asked, check_in=check_in)
        if is_new:
            self._count(receipt, asked.header.bytes)
        following = self._visits.checked_in(client, assignment) if is_new and check_in else None
        if following is not None and following.finished:
            await self._engine.confirm()
        received = self._received(receipt, following)
        return HandInAnswer(received=received, check=assignment and self._checks.of_body(assignment))

    def _count(self, receipt: Receipt | Unknown, size: int) -> None:
        self._service.metrics.upload_bytes.inc(size)
        if isinstance(receipt, Receipt) and receipt.counted:
            self._service.metrics.staleness.observe(receipt.staleness)

    def _received(self, receipt: Receipt | Unknown, following: messages.CheckedIn | None = None) -> messages.Received:
        return messages.Received(receipt=receipt_message(receipt), next=following, audit_head=self._head)

    @property
    def _head(self) -> str:
        """The head of the audit log, for a receipt."""
        return str(self._service.accounts.audit.head)

    async def _renew_lease(self, asked: questions.RenewLease) -> messages.Beat:
        client = self._service.client(asked.token)
        is_wanted, is_urgent = await self._engine.heartbeat(client, asked.visit)
        seconds = self._service.settings.lease_seconds
        return messages.Beat(wanted=is_wanted, lease_seconds=seconds, urgent=is_urgent)

    async def _give_up(self, asked: questions.GiveUp) -> Done:
        await self._engine.give_up(self._service.client(asked.token), asked.visit)
        return Done()

    async def _hand_in_evaluation(self, asked: questions.HandInEvaluation) -> messages.EvaluationReceipt:
        client, version, result = self._service.client(asked.token), asked.version, asked.result
        self._service.accounts.examples.check_maximum(result.examples)
        if self._engine.models.differs(version, result.model_sha256):
            raise Refusal("no-such-evaluation", f"another model was evaluated than version {version}: check in again")
        evaluations = self._engine.asked_evaluations(version)
        counted = evaluations.answer(version, ClientResult(client, result.examples, result.metrics))
        await self._engine.log_writer.wait_until_durable()
        return messages.EvaluationReceipt(counted=counted, audit_head=self._head)

    async def _download(self, asked: questions.Download) -> DownloadPermission:
        engine = self._engine
        if asked.by_operator:
            self._service.accounts.check_hash(asked.token, "operator")
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
        kept = self._engine.models.versions()
        self._stored = {other: done for other, done in self._stored.items() if other in kept}
        stored = self._stored.get(version)
        if stored is None or (stored.done() and (stored.cancelled() or stored.exception() is not None)):
            stored = asyncio.ensure_future(shared.upload(path, model_name(version, digest)))
            self._stored[version] = stored
        await asyncio.shield(stored)
