"""A client's turns: check in, download, train, upload."""

import logging
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from offbeat_client.client_folder.identity import AuditHeads
from offbeat_client.client_folder.outbox import Outbox, Pending
from offbeat_client.http.connection import Connection, jitter
from offbeat_client.http.heartbeat import Heartbeat
from offbeat_client.http.model_download import download
from offbeat_client.http.upload import LARGE_BYTES, Delivery, upload, upload_share
from offbeat_client.local_update import put_update
from offbeat_client.private_updates import PrivateUpdates
from offbeat_client.private_visits import URGENT
from offbeat_client.receipt_log import ReceiptLog
from offbeat_client.training import evaluate, probe, train
from offbeat_client.visit import Evaluate, Fit, Visit, visit_of
from offbeat_core.errors import GiveUpError, OffbeatError
from offbeat_core.http.service_errors import LONGEST_WAIT, ServiceError
from offbeat_core.messages import CheckedIn, CheckInRequest, PrivacyMessage

WAIT_SECONDS = 20.0
"""How long the server may wait for work before it answers that there is none."""

# The server has read the update and will never accept it. Other refusals concern the client, or may pass.
_FINAL_STATUSES = (400, 413, 422)

_log = logging.getLogger(__name__)


@dataclass
class Participant:
    """One client in one run, one turn after the other, until ``finished``.

    A check-in waits for work for up to ``wait_seconds``, and without work the client pauses for ``longest_pause`` and a
    half of it at most.
    """

    connection: Connection
    folder: Path
    client: int
    fit: Fit
    measure: Evaluate | None
    outbox: Outbox
    private: PrivateUpdates | None = None
    receipts: ReceiptLog = field(default_factory=ReceiptLog)
    wait_seconds: float = WAIT_SECONDS
    longest_pause: float = math.inf

    def __post_init__(self) -> None:
        self.finished = False
        self._audit_heads = AuditHeads(self.folder)
        self._next: CheckedIn | None = None  # came with the last receipt

    def introduce(self) -> None:
        """Measure the client's speed before its first update.

        With terms, an update from before them is dropped instead.
        """
        if self.private is not None:
            pending = self.outbox.pending()
            if pending is not None and not self.private.owns(pending):
                self._give_up(pending.visit)
                self.outbox.drop()
        elif self.outbox.pending() is None and self.outbox.kept().since is None:
            probe(self.connection, self.folder, self.client, self.fit, self.outbox)

    def take_turn(self, *, is_last: bool) -> bool | None:
        """Do a visit and deliver its update; return whether it counted, if known.

        ``is_last`` says that there will be no turn after this update.
        """
        # An update from before a kill comes first: its receipt decides about the memory that the next one needs.
        if pending := self.outbox.pending():
            return self._deliver(pending, ask_first=True, is_last=is_last)
        check_in = self._check_in()
        self.finished = check_in.finished
        if check_in.evaluation is not None and self.private is not None:
            raise OffbeatError(
                "the server asks for losses and metrics, which a client with terms never sends: ask its admin"
            )
        if check_in.evaluation is not None and self.measure is not None:
            head = evaluate(self.connection, self.folder, check_in.evaluation, self.measure)
            self._audit_heads.keep(head)
            return None
        if check_in.visit is not None and not self.finished:
            visit = visit_of(check_in.visit, self.client)
            pending = self._work(visit) if self._accepts(visit, check_in.visit.privacy) else None
            return None if pending is None else self._deliver(pending, ask_first=False, is_last=is_last)
        if not self.finished:
            self.receipts.note_idle("no work now; the client keeps asking")
            # Clients that were sent away together should not come back together.
            seconds = min(check_in.retry_after_seconds or 0.0, LONGEST_WAIT, self.longest_pause)
            time.sleep(seconds + jitter(seconds / 2))
        return None

    def _check_in(self) -> CheckedIn:
        if self._next is not None and self._next.visit is not None:
            following, self._next = self._next, None
            return following
        request = CheckInRequest(wait_seconds=self.wait_seconds)
        return self.connection.ask("POST", "/v1/checkin", CheckedIn, request, wait_seconds=self.wait_seconds)

    def _accepts(self, visit: Visit, privacy: PrivacyMessage | None) -> bool:
        """Return whether the client works on a visit.

        Raises:
            OffbeatError: It cannot work for this server.
        """
        try:
            if self.private is not None:
                self.private.check_visit(visit, privacy)
            elif privacy is not None:
                raise OffbeatError("this run takes masked updates only: join with --terms, the helper's terms.json")
        except OffbeatError:
            self._give_up(visit.number)
            raise
        if self.private is None or self.private.starts_later(visit):
            return True
        _log.warning("visit %d: this client has trained from version %d before", visit.number, visit.version)
        self._give_up(visit.number)
        time.sleep(jitter(self.connection.backoff.largest_seconds))
        return False

    def _work(self, visit: Visit) -> Pending | None:
        """Train and make the update; None if the server no longer wants it."""
        _log.info("visit %d: %d steps from version %d", visit.number, visit.plan.steps, visit.version)
        with Heartbeat(self.connection, visit.number, visit.lease_seconds, visit.urgent) as heartbeat:
            try:
                model = download(self.connection, visit, self.folder)
            except GiveUpError as error:
                return self._leave(visit, error)
            except ServiceError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                return self._leave(visit, error)
            try:
                digest = None if self.private is None else self.private.check_model(visit, model)
                result, seconds = train(visit, model, self.fit, self.outbox)
                if digest is not None and visit.urgent.is_set() and heartbeat.wanted:
                    raise OffbeatError(URGENT)
                if heartbeat.wanted:
                    _log.info("visit %d: trained in %.1f s, sending the update", visit.number, seconds)
                    if self.private is not None and digest is not None:
                        return self.private.put(visit, model, digest, result)
                    return put_update(visit, model, result, seconds, self.outbox)
            except GiveUpError as error:
                return self._leave(visit, error)
            except OffbeatError:
                self._give_up(visit.number)
                raise
        _log.info("visit %d: the server no longer wants the update", visit.number)
        self._give_up(visit.number)
        return None

    def _deliver(self, pending: Pending, *, ask_first: bool, is_last: bool) -> bool | None:
        """Upload an update; return whether it counted, or None if it is refused."""
        try:
            with Heartbeat(self.connection, pending.visit, pending.lease_seconds):
                delivery = self._upload(pending, ask_first=ask_first, check_in=not is_last)
        except ServiceError as error:
            self._drop_refused(pending, error)
            return None
        self._audit_heads.keep(delivery.audit_head)
        self.outbox.acknowledge(pending, delivery.counted, delivery.upload_seconds)
        if delivery.following is not None:
            self._next, self.finished = delivery.following, delivery.following.finished
        self.receipts.note_receipt(pending.visit, delivery)
        return delivery.counted

    def _upload(self, pending: Pending, *, ask_first: bool, check_in: bool) -> Delivery:
        if self.private is not None:
            return upload_share(self.connection, pending, self.private, self.outbox, check_in=check_in)
        body = self.outbox.body(pending.visit)
        ask_first = ask_first or body.stat().st_size > LARGE_BYTES
        return upload(self.connection, pending, body, ask_first=ask_first, check_in=check_in)

    def _drop_refused(self, pending: Pending, error: ServiceError) -> None:
        """Drop an update that is refused; raise the refusal unless the client can go on."""
        is_superseded = error.kind in ("no-such-visit", "other-upload")
        if is_superseded or error.status in _FINAL_STATUSES:
            if error.kind != "no-such-visit":
                self._give_up(pending.visit)
            self.outbox.drop()
        if error.kind == "lost-memory":
            raise OffbeatError(
                f"{self.folder} has lost what the client remembers of its last counted update, which the server "
                "builds on: take another folder, and enrol again"
            ) from error
        if not is_superseded:
            raise error
        _log.warning("%s", error)

    def _leave(self, visit: Visit, error: OffbeatError) -> None:
        """Give up a visit, and wait a moment before the next check-in."""
        _log.warning("%s", error)
        self._give_up(visit.number)
        time.sleep(jitter(self.connection.backoff.first_seconds))

    def _give_up(self, visit: int) -> None:
        # If the request is lost, the lease lapses.
        with suppress(OffbeatError):
            self.connection.send("POST", f"/v1/visits/{visit}/give-up")
