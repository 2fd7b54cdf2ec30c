"""Intake of updates into the coordinator."""

from collections.abc import Callable
from typing import TypeVar

from offbeat_core.local_plan import normaliser

from offbeat.coordinator import Assignment, Receipt, Unknown
from offbeat.service.engine.live_run import LiveRun
from offbeat.service.masked.masked_shares import MaskedShares
from offbeat.service.refusal import Refusal
from offbeat.service.store.call_records import DiscardedUpdate
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.store.segments import Segments
from offbeat.service.updates.update_body import Body, BufferedUpdate, StoredUpdate
from offbeat.service.updates.update_header import Header, ShareHeader, UpdateHeader, private_report
from offbeat.service.updates.upload_history import Digests

T = TypeVar("T")

_NORMALISER_FACTOR = 10  # between the client's optimiser and the plan's SGD


class UpdateIntake:
    """The intake of updates: each goes to the coordinator once, stored if it counts.

    The caller holds the engine's lock.

    Args:
        run: The run.
        models: The files of versions.
        segments: Store small updates.
        digests: Of the clients' last uploads.
        shares: Checks the shares of masked updates; None if updates are not masked.
    """

    def __init__(
        self, run: LiveRun, models: ModelFiles, segments: Segments, digests: Digests, shares: MaskedShares | None
    ) -> None:
        self._run = run
        self._coordinator = run.coordinator
        self._models = models
        self._segments = segments
        self._digests = digests
        self._shares = shares

    def outcome(self, client: int, visit: int, digest: str | None = None) -> Receipt | Unknown | None:
        """Return the receipt of a closed visit; None for an open one.

        ``digest`` is the SHA-256 of the update that is being uploaded; None if none is.

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

    def check_header(self, client: int, visit: int, header: Header) -> None:
        """Check the header of an update against the visit, if that is not over.

        Raises:
            Refusal: ``wrong-version``, ``no-such-visit``, ``wrong-plan`` or ``no-loss``; ``share-needed``,
                ``no-share``, ``wrong-share`` or ``stale-share``.
        """
        assignment = self._coordinator.visits.assignment(client)
        if assignment is None or assignment.visit != visit:
            return
        if header.version != assignment.version:
            raise Refusal("wrong-version", f"the visit began from version {assignment.version}, not {header.version}")
        if isinstance(header, UpdateHeader):
            if self._models.differs(assignment.version, header.model_sha256):
                raise Refusal(
                    "no-such-visit", f"visit {visit} began from another model of this version: check in for new work"
                )
            if self._shares is not None:
                raise Refusal("share-needed", "updates of this run are masked: send a share, never a plain update")
            self._check_report(assignment, header)
        elif self._shares is None:
            raise Refusal(
                "no-share", "updates of this run are not masked: join without --terms, and with another --folder"
            )
        else:
            self._shares.check(assignment, header)

    def _check_report(self, assignment: Assignment, header: UpdateHeader) -> None:
        if header.steps > assignment.plan.steps:
            raise Refusal("wrong-plan", f"the plan has {assignment.plan.steps} steps, not {header.steps}")
        usual = normaliser(assignment.plan.prefix(header.steps)) if header.steps else 0.0
        if header.normaliser and not usual / _NORMALISER_FACTOR <= header.normaliser <= usual * _NORMALISER_FACTOR:
            raise Refusal(
                "wrong-plan",
                f"the normaliser of {header.steps} steps of this plan's SGD is {usual:.6g}; allowed are 0, and "
                f"{_NORMALISER_FACTOR} times more or less, not {header.normaliser:.6g}",
            )
        if self._coordinator.algorithm.needs_loss and header.loss is None:
            raise Refusal("no-loss", "this run needs the visit's mean training loss: send loss, a finite number")

    def deliver(self, client: int, visit: int, header: Header, body: Body) -> Receipt:
        """Give the coordinator the update of an open visit, and return its receipt.

        A body in memory is stored if it counts; a body in a file is already on disk.

        Raises:
            Refusal: The header does not fit the visit, the client has lost its memory, or the update is malformed.
        """
        assignment, algorithm = self._coordinator.visits.assignment(client), self._coordinator.algorithm
        assert assignment is not None
        self.check_header(client, visit, header)
        base = self._models.read(assignment.version) if algorithm.needs_base else None
        is_wanted = self._coordinator.late_updates.counts(assignment)
        if isinstance(header, ShareHeader) or self._coordinator.participation is not None:
            report = private_report(header, assignment.plan)
        else:
            report = header.report(needs_loss=algorithm.needs_loss)
        try:
            receipt = self._coordinator.receive(
                self._run.now,
                client,
                visit,
                self._stored(body, header.sha256) if is_wanted else DiscardedUpdate(header.sha256),
                base=base,
                **report,
            )
        except ValueError as error:
            if is_wanted and isinstance(body, BufferedUpdate):
                self._segments.remove_last()
            raise self._refusal(assignment, header, error) from None
        self._digests.add(client, visit, header.sha256, counted=receipt.counted)
        if isinstance(header, ShareHeader) and self._shares is not None:
            self._shares.add_key(client, header.share)
        return receipt

    def _stored(self, body: Body, digest: str) -> StoredUpdate:
        if isinstance(body, StoredUpdate):
            return body
        segment, begin = self._segments.append(body.data)
        return StoredUpdate(segment.path, begin, body.size, body.length, body.plan_compression, digest, body.is_masked)

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
    """Make a call of the coordinator, with ``Refusal`` in place of ``ValueError``.

    The coordinator raises ``ValueError`` if the client was never given the visit.

    Raises:
        Refusal: ``no-such-visit``.
    """
    try:
        return call()
    except ValueError as error:
        raise Refusal("no-such-visit", f"{error}: check in for new work") from None
