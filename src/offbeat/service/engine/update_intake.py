"""Intake of updates into the coordinator."""

from collections.abc import Callable
from typing import TypeVar

from offbeat_core.local_plan import LocalPlan, normaliser

from offbeat.algorithms.components.client_update import Report
from offbeat.coordinator import Assignment, Receipt, Unknown
from offbeat.service.engine.live_run import LiveRun
from offbeat.service.masked.masked_shares import MaskedShares
from offbeat.service.refusal import Refusal
from offbeat.service.store.call_records import DiscardedUpdate
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.updates.update_body import Body, StoredUpdate
from offbeat.service.updates.update_header import Header, ShareHeader, UpdateHeader
from offbeat.service.updates.upload_history import Digests

T = TypeVar("T")


class UpdateIntake:
    """The intake of updates: each goes to the coordinator once.

    The caller holds the engine's lock. ``digests`` are those of the clients' last uploads; ``shares`` is None if
    updates are not masked.
    """

    def __init__(self, run: LiveRun, models: ModelFiles, digests: Digests, shares: MaskedShares | None) -> None:
        self._run = run
        self._coordinator = run.coordinator
        self._models = models
        self._digests = digests
        self._shares = shares

    def outcome(self, client: int, visit: int, digest: str | None = None) -> Receipt | Unknown | None:
        """Return the receipt of a closed visit; None for an open one.

        ``digest`` is that of the update that is being uploaded; None if none is.

        Raises:
            Refusal: ``no-such-visit``; or ``other-upload``: another update was received for the visit.
        """
        self._run.close_visits()
        if self._coordinator.visits.assignment(client, visit) is not None:
            return None
        known = self._digests.get(client, visit)
        if digest is not None and known is not None and known != digest:
            raise Refusal("other-upload", f"another update was received for visit {visit}: check in for new work")
        receipt = known_visit(lambda: self._coordinator.offer(self._run.now, client, visit))
        assert receipt is not None
        # Without its digest the update may be another one than the one that counted.
        may_be_another = digest is not None and known is None and receipt.counted
        return receipt if self._coordinator.visits.remembers(client, visit) and not may_be_another else Unknown()

    def deliver(self, client: int, header: Header, body: Body) -> Receipt:
        """Give the coordinator the update of an open visit; return its receipt.

        A body in memory goes into the log if it counts; a body in a file is already on disk.

        Raises:
            Refusal: The share no longer fits, the client has lost its memory, the update is malformed, or its file is
                missing.
        """
        assignment, algorithm = self._coordinator.visits.assignment(client), self._coordinator.algorithm
        assert assignment is not None
        if isinstance(body, StoredUpdate) and not body.path.exists():
            # An earlier attempt was refused, and its front asked again.
            raise Refusal("busy", "the update's file is gone: upload it again", {"Retry-After": "1"})
        if isinstance(header, ShareHeader) and self._shares is not None:
            # Again: the epoch may be over by now, and the key another client's.
            self._shares.check(assignment, header)
        base = self._models.read(assignment.version) if algorithm.needs_base else None
        is_wanted = self._coordinator.late_updates.counts(assignment)
        if isinstance(header, ShareHeader) or self._coordinator.participation is not None:
            report = private_report(header, assignment.plan)
        else:
            report = reported(header, needs_loss=algorithm.needs_loss)
        try:
            receipt = self._coordinator.receive(
                self._run.now,
                client,
                assignment.visit,
                body if is_wanted else DiscardedUpdate(header.digest),
                base=base,
                **report,
            )
        except ValueError as error:
            raise self._refusal(assignment, header, error) from None
        self._digests.add(client, assignment.visit, header.digest, counted=receipt.counted)
        if isinstance(header, ShareHeader) and self._shares is not None:
            self._shares.add_key(client, header.share)
        return receipt

    def _refusal(self, assignment: Assignment, header: Header, error: ValueError) -> Refusal:
        """Return the refusal of an update that the algorithm does not accept.

        A client that has lost its memory is released from the visit, and gets new work.
        """
        algorithm = self._coordinator.algorithm
        has_memory = algorithm.payload == "difference" or algorithm.corrects_gradients
        if has_memory and header.since != assignment.since:
            self._coordinator.drop(self._run.now, assignment.client, assignment.visit)
            return Refusal("lost-memory", str(error))
        return Refusal("malformed-update", str(error))


def known_visit(call: Callable[[], T]) -> T:
    """Make a call of the coordinator, or raise ``no-such-visit``."""
    try:
        return call()
    except ValueError as error:
        raise Refusal("no-such-visit", f"{error}: check in for new work") from None


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
