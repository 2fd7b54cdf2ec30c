"""The leader's part of an upload.

An update goes to the coordinator once, and into the log before its receipt. Its body is not read here.
"""

import asyncio
import logging
from contextlib import suppress
from typing import NamedTuple

from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import LocalPlan, normaliser
from offbeat_core.serving.console_log import event

from offbeat.algorithms.components.client_update import Report
from offbeat.coordinator import Assignment, Receipt, Unknown
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.update_checks import UpdateChecks
from offbeat.service.internal.questions import HandIn
from offbeat.service.refusal import Refusal
from offbeat.service.store.call_records import DiscardedUpdate
from offbeat.service.updates.update_body import Body, BufferedUpdate, StoredUpdate
from offbeat.service.updates.update_header import Header, ShareHeader, UpdateHeader

_SOON = {"Retry-After": "1"}


class Decision(NamedTuple):
    """The answer to an update."""

    receipt: Receipt | Unknown
    assignment: Assignment | None = None  # the client's next visit, if it asked for one and there is work
    is_new: bool = True  # False for an update whose visit was over


class UpdateIntake:
    """Takes in the updates of visits."""

    def __init__(self, engine: Engine, accounts: Accounts, checks: UpdateChecks) -> None:
        self._engine = engine
        self._coordinator = engine.coordinator
        self._accounts = accounts
        self._checks = checks

    async def take(self, client: int, asked: HandIn, *, check_in: bool) -> Decision:
        """Take in an update; its receipt is in the log then.

        With ``check_in`` the client gets its next visit, if there is work.

        Raises:
            Refusal: The update is refused; ``lost-memory`` frees the visit's slot.
        """
        visit, header, engine = asked.visit, asked.header, self._engine
        try:
            assignment = await self._checks.fitting_visit(client, visit, header)
            if assignment is None:
                return Decision(await self.repeated(client, visit, header), is_new=False)
            engine.log_writer.check()
            body = await self._body(client, asked, assignment.plan)
            norm = None if asked.norm is None else self._checks.relative_norm(header, assignment.plan, asked.norm)
            decision = await self._decide(client, visit, header, body, check_in=check_in)
        except OSError as error:
            raise engine.disk.refusal(error) from None
        finally:
            self.delete_unused(asked.blob)
        is_known = self._accounts.sites[client].forgotten is None
        if isinstance(decision.receipt, Receipt) and decision.receipt.counted and is_known:
            if norm is not None:
                engine.history.norms.add(client, norm)
            if isinstance(header, UpdateHeader) and not self._accounts.examples.is_known(client):
                self._accounts.declare(client, header.examples)
        return decision

    def delete_unused(self, name: str | None) -> None:
        """Delete a large update that has no row: it was refused, or does not count."""
        if name is not None and (path := self._engine.updates / name) not in self._engine.calls.update_files:
            path.unlink(missing_ok=True)

    async def _decide(self, client: int, visit: int, header: Header, body: Body, *, check_in: bool) -> Decision:
        """Let the coordinator receive an update, in its turn."""
        engine, refusal = self._engine, None
        following: Assignment | None = None
        async with engine.lock:
            self._accounts.check_client(client)
            receipt = engine.outcome(client, visit, header.digest)
            if receipt is None:
                try:
                    receipt = self._give(client, header, body)
                except Refusal as error:
                    refusal = error  # which may have freed the client's slot
                await engine.try_to_assign()
            if check_in and refusal is None:
                with suppress(Refusal):  # the client's next check-in reports the full disk
                    following = await engine.next_visit(client)
        await engine.log_writer.wait_until_durable()
        if refusal is not None:
            raise refusal
        assert receipt is not None
        return Decision(receipt, following)

    async def repeated(self, client: int, visit: int, header: Header) -> Receipt | Unknown:
        """Return the receipt of a closed visit, for a repeated upload."""
        async with self._engine.lock:
            receipt = self._engine.outcome(client, visit, header.digest)
            if receipt is None:  # it was opened while the body came, as on a server that is being replaced
                raise Refusal("busy", f"visit {visit} has just begun: try again", _SOON)
        await self._engine.log_writer.wait_until_durable()
        return receipt

    async def _body(self, client: int, asked: HandIn, plan: LocalPlan) -> Body:
        header, name, length = asked.header, asked.blob, self._engine.models.length
        is_masked = isinstance(header, ShareHeader)
        if name is None:
            return BufferedUpdate(bytes(asked.body), length, plan.compression, header.digest, is_masked)
        path = self._engine.updates / name
        if self._engine.shared is not None and not path.exists():
            try:  # from a front on another machine
                await asyncio.to_thread(self._engine.shared.download, f"updates/{name}", header.digest, path)
            except OffbeatError as error:
                event("update_broken", logging.WARNING, client=client, problem=str(error.__cause__))
                raise Refusal("busy", "the update's file is gone or broken: upload it again", _SOON) from None
        return StoredUpdate(path, header.bytes, length, plan.compression, header.digest, is_masked)

    def _give(self, client: int, header: Header, body: Body) -> Receipt:
        """Give the coordinator the update of an open visit; return its receipt.

        The caller holds the engine's lock. A body in memory goes into the log if it counts; a body in a file is already
        on disk.

        Raises:
            Refusal: The share no longer fits, the client has lost its memory, the update is malformed, or its file is
                missing.
        """
        coordinator, shares = self._coordinator, self._engine.shares
        assignment, algorithm = coordinator.visits.assignment(client), coordinator.algorithm
        assert assignment is not None
        if isinstance(body, StoredUpdate) and not body.path.exists():
            # An earlier attempt was refused, and its front asked again.
            raise Refusal("busy", "the update's file is gone: upload it again", _SOON)
        if isinstance(header, ShareHeader) and shares is not None:
            # Again: the epoch may be over by now, and the key another client's.
            shares.check(assignment, header)
        base = self._engine.models.read(assignment.version) if algorithm.needs_base else None
        is_wanted = coordinator.late_updates.counts(assignment)
        if isinstance(header, ShareHeader) or coordinator.participation is not None:
            report = private_report(header, assignment.plan)
        else:
            report = reported(header, needs_loss=algorithm.needs_loss)
        try:
            receipt = coordinator.receive(
                self._engine.run.now,
                client,
                assignment.visit,
                body if is_wanted else DiscardedUpdate(header.digest),
                base=base,
                **report,
            )
        except ValueError as error:
            raise self._refusal(assignment, header, error) from None
        self._engine.history.digests.add(client, assignment.visit, header.digest, counted=receipt.counted)
        if isinstance(header, ShareHeader) and shares is not None:
            shares.add_key(client, header.share)
        return receipt

    def _refusal(self, assignment: Assignment, header: Header, error: ValueError) -> Refusal:
        """Return the refusal of an update that the algorithm does not accept.

        A client that has lost its memory is released from the visit, and gets new work.
        """
        algorithm = self._coordinator.algorithm
        has_memory = algorithm.payload == "difference" or algorithm.corrects_gradients
        if has_memory and header.since != assignment.since:
            self._coordinator.drop(self._engine.run.now, assignment.client, assignment.visit)
            return Refusal("lost-memory", str(error))
        return Refusal("malformed-update", str(error))


def reported(header: UpdateHeader, *, needs_loss: bool) -> Report:
    """Return the report for the algorithm; with the loss only if it is needed."""
    return Report(
        examples=header.examples,
        steps=header.steps,
        normaliser=header.normaliser,
        since=header.since,
        step_seconds=header.step_seconds,
        upload_seconds=header.upload_seconds,
        loss=header.loss if needs_loss else None,
    )


def private_report(header: Header, plan: LocalPlan) -> Report:
    """Return the report of a private update, with nothing that its client measured."""
    share = header.share if isinstance(header, ShareHeader) else None
    return Report(examples=1, steps=plan.steps, normaliser=normaliser(plan), since=header.since, share=share)
