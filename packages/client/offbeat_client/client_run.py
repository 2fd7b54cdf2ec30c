"""A client's life: check in, download, train, upload, again and again."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from offbeat_client.client_folder.identity import AuditHeads, ClientFolder
from offbeat_client.client_folder.outbox import Outbox, Pending
from offbeat_client.http.connection import Connection
from offbeat_client.http.enrolment import declare, identify, renew
from offbeat_client.http.heartbeat import Heartbeat
from offbeat_client.http.model_download import download
from offbeat_client.http.retry import Backoff, jitter
from offbeat_client.http.upload import LARGE_BYTES, Delivery, upload, upload_share
from offbeat_client.local_update import put_update
from offbeat_client.private_updates import PrivateUpdates, private_updates
from offbeat_client.private_visits import URGENT
from offbeat_client.receipt_log import ReceiptLog
from offbeat_client.training import evaluate, probe, train
from offbeat_client.visit import Client, Evaluate, Fit, Visit, visit_of
from offbeat_core.errors import GiveUpError, OffbeatError
from offbeat_core.http.service_errors import LONGEST_WAIT, ServiceError
from offbeat_core.messages import CheckedIn, CheckInRequest, PrivacyMessage
from offbeat_core.number_checks import check_count
from offbeat_core.user_code_errors import user_code

_WAIT_SECONDS = 20.0
# The server has read the update and will never accept it. Other refusals concern the client, or may pass.
_FINAL_STATUSES = (400, 413, 422)

_log = logging.getLogger(__name__)


def run_client(
    url: str,
    make_client: Callable[[int], Client | Fit],
    folder: Path,
    *,
    enrolment_token: str | None = None,
    name: str | None = None,
    ca: Path | None = None,
    visits: int | None = None,
    backoff: Backoff | None = None,
    terms: Path | None = None,
    privacy_key: Path | None = None,
) -> int:
    """Take part in a run until it is over; models are numpy arrays by parameter name.

    The process may be killed at any time; the same call then resumes.

    Args:
        url: The server's, such as ``https://host:8443``.
        make_client: Makes the user's client, an object with ``fit`` or a function, from the client's number.
        folder: The client's identity, its unacknowledged update and its memory; one for each client.
        enrolment_token: Needed as long as the folder holds no client.
        name: The client's name, for people.
        ca: A file with the certificates to trust; None for those of the system.
        visits: After how many acknowledged updates to stop; None for the end of the run.
        backoff: When to try again if the server cannot be reached; by default, once the client has enrolled, without
            end, at least every 30 s.
        terms: The helper's file ``terms.json``. With it, only masked updates leave the client; it declares no examples
            and measures no speed for the server.
        privacy_key: The client's key; by default the one that ``offbeat client key`` made in the folder.

    Returns:
        How many updates of this call counted.

    Raises:
        OffbeatError: The server refuses the client or cannot be reached, the client's code fails, its memory is lost,
            or the folder cannot be used.
    """
    with ClientFolder(folder) as home, Connection(url, ca=ca, backoff=backoff) as connection:
        try:
            outbox = Outbox(folder)
            private = private_updates(folder, terms, privacy_key, outbox)
            connection.supports = "" if private is None else "privacy"
            identity = identify(connection, home, enrolment_token, name)
            with user_code("making the client failed"):
                made = make_client(identity.client)
            measure = None if private is not None else _evaluate(made)
            participant = _Participant(connection, folder, identity.client, _fit(made), measure, outbox, private)
            if private is None:
                connection.supports = _supports(made, measure)
                identity = declare(connection, home, identity, _examples(made))
            participant.introduce()
            counted = done = 0
            while (visits is None or done < visits) and not participant.finished:
                identity = renew(connection, home, identity)
                receipt = participant.take_turn(is_last=done + 1 == visits)
                if receipt is not None:
                    done += 1
                    counted += receipt
            return counted
        except OSError as error:
            raise OffbeatError(f"cannot use {folder}: {error.strerror or error}") from error


def run(
    url: str,
    fit: Client | Fit,
    folder: Path | str = "client",
    *,
    enrolment_token: str | None = None,
    name: str | None = None,
    ca: Path | str | None = None,
    visits: int | None = None,
) -> int:
    """Take part in a run with one function, until the run is over.

    ``fit(model, visit)`` maps numpy arrays by parameter name and a ``Visit`` to the trained arrays and the number of
    examples. For the rest see ``run_client``.
    """
    return run_client(
        url,
        lambda _: fit,
        Path(folder),
        enrolment_token=enrolment_token,
        name=name,
        ca=None if ca is None else Path(ca),
        visits=visits,
    )


def _examples(made: Client | Fit) -> int | None:
    """Return how many examples the user's client holds, None if it does not say."""
    examples: Any = getattr(made, "examples", None)
    if examples is None:
        return None
    try:
        return check_count("the client's examples", examples)
    except ValueError as error:
        raise OffbeatError(str(error)) from None


def _fit(made: Client | Fit) -> Fit:
    fit: Any = getattr(made, "fit", made)
    if not callable(fit):
        raise OffbeatError(
            f"what makes the client must return a function or an object with fit, got {type(made).__name__}"
        )
    return cast("Fit", fit)


def _evaluate(made: Client | Fit) -> Evaluate | None:
    """Return the client's ``evaluate``; None if it has none."""
    measure: Any = getattr(made, "evaluate", None)
    if measure is not None and not callable(measure):
        raise OffbeatError(f"the client's evaluate must be a function, got {type(measure).__name__}")
    return cast("Evaluate | None", measure)


def _supports(made: Client | Fit, measure: Evaluate | None) -> str:
    corrects = ["corrects_gradients", "keeps_regulariser"] if getattr(made, "corrects_gradients", False) is True else []
    return ", ".join(["needs_loss", *corrects, *([] if measure is None else ["evaluate"])])


class _Participant:
    """One client at one server, one turn after the other, until ``finished``."""

    def __init__(
        self,
        connection: Connection,
        folder: Path,
        client: int,
        fit: Fit,
        measure: Evaluate | None,
        outbox: Outbox,
        private: PrivateUpdates | None,
    ) -> None:
        self.finished = False
        self._connection = connection
        self._folder = folder
        self._client = client
        self._fit = fit
        self._measure = measure
        self._outbox = outbox
        self._private = private
        self._audit_heads = AuditHeads(folder)
        self._progress = ReceiptLog()
        self._next: CheckedIn | None = None  # came with the last receipt

    def introduce(self) -> None:
        """Measure the client's speed before its first update.

        With terms, an update from before them is dropped instead.
        """
        if self._private is not None:
            pending = self._outbox.pending()
            if pending is not None and not self._private.owns(pending):
                self._give_up(pending.visit)
                self._outbox.drop()
        elif self._outbox.pending() is None and self._outbox.kept().since is None:
            probe(self._connection, self._folder, self._client, self._fit, self._outbox)

    def take_turn(self, *, is_last: bool) -> bool | None:
        """Do a visit and deliver its update; return whether it counted, if known.

        ``is_last`` says that there will be no turn after this update.
        """
        # An update from before a kill comes first: its receipt decides about the memory that the next one needs.
        if pending := self._outbox.pending():
            return self._deliver(pending, ask_first=True, is_last=is_last)
        check_in = self._check_in()
        self.finished = check_in.finished
        if check_in.evaluation is not None and self._private is not None:
            raise OffbeatError(
                "the server asks for losses and metrics, which a client with terms never sends: ask its admin"
            )
        if check_in.evaluation is not None and self._measure is not None:
            head = evaluate(self._connection, self._folder, check_in.evaluation, self._measure)
            self._audit_heads.keep(head)
            return None
        if check_in.visit is not None and not self.finished:
            visit = visit_of(check_in.visit, self._client)
            pending = self._work(visit) if self._accepts(visit, check_in.visit.privacy) else None
            return None if pending is None else self._deliver(pending, ask_first=False, is_last=is_last)
        if not self.finished:
            self._progress.note_idle()
            # Clients that were sent away together should not come back together.
            seconds = min(check_in.retry_after_seconds or 0.0, LONGEST_WAIT)
            time.sleep(seconds + jitter(seconds / 2))
        return None

    def _check_in(self) -> CheckedIn:
        if self._next is not None and self._next.visit is not None:
            following, self._next = self._next, None
            return following
        request = CheckInRequest(wait_seconds=_WAIT_SECONDS)
        return self._connection.ask("POST", "/v1/checkin", CheckedIn, request, wait_seconds=_WAIT_SECONDS)

    def _accepts(self, visit: Visit, privacy: PrivacyMessage | None) -> bool:
        """Return whether the client works on a visit.

        Raises:
            OffbeatError: It cannot work for this server.
        """
        try:
            if self._private is not None:
                self._private.check_visit(visit, privacy)
            elif privacy is not None:
                raise OffbeatError("this run takes masked updates only: join with --terms, the helper's terms.json")
        except OffbeatError:
            self._give_up(visit.number)
            raise
        if self._private is None or self._private.starts_later(visit):
            return True
        _log.warning("visit %d: this client has trained from version %d before", visit.number, visit.version)
        self._give_up(visit.number)
        time.sleep(jitter(self._connection.backoff.largest_seconds))
        return False

    def _work(self, visit: Visit) -> Pending | None:
        """Train and make the update; None if the server no longer wants it."""
        _log.info("visit %d: %d steps from version %d", visit.number, visit.plan.steps, visit.version)
        with Heartbeat(self._connection, visit.number, visit.lease_seconds, visit.urgent) as heartbeat:
            try:
                model = download(self._connection, visit, self._folder)
            except GiveUpError as error:
                return self._leave(visit, error)
            except ServiceError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                return self._leave(visit, error)
            try:
                digest = None if self._private is None else self._private.check_model(visit, model)
                result, seconds = train(visit, model, self._fit, self._outbox)
                if digest is not None and visit.urgent.is_set() and heartbeat.wanted:
                    raise OffbeatError(URGENT)
                if heartbeat.wanted:
                    _log.info("visit %d: trained in %.1f s, sending the update", visit.number, seconds)
                    if self._private is not None and digest is not None:
                        return self._private.put(visit, model, digest, result)
                    return put_update(visit, model, result, seconds, self._outbox)
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
            with Heartbeat(self._connection, pending.visit, pending.lease_seconds):
                delivery = self._upload(pending, ask_first=ask_first, check_in=not is_last)
        except ServiceError as error:
            self._drop_refused(pending, error)
            return None
        self._audit_heads.keep(delivery.audit_head)
        self._outbox.acknowledge(pending, delivery.counted, delivery.upload_seconds)
        if delivery.following is not None:
            self._next, self.finished = delivery.following, delivery.following.finished
        self._progress.note_receipt(pending.visit, delivery)
        return delivery.counted

    def _upload(self, pending: Pending, *, ask_first: bool, check_in: bool) -> Delivery:
        if self._private is not None:
            return upload_share(self._connection, pending, self._private, self._outbox, check_in=check_in)
        body = self._outbox.body(pending.visit)
        ask_first = ask_first or body.stat().st_size > LARGE_BYTES
        return upload(self._connection, pending, body, ask_first=ask_first, check_in=check_in)

    def _drop_refused(self, pending: Pending, error: ServiceError) -> None:
        """Drop an update that is refused; raise the refusal unless the client can go on."""
        is_superseded = error.kind in ("no-such-visit", "other-upload")
        if is_superseded or error.status in _FINAL_STATUSES:
            if error.kind != "no-such-visit":
                self._give_up(pending.visit)
            self._outbox.drop()
        if error.kind == "lost-memory":
            raise OffbeatError(
                f"{self._folder} has lost what the client remembers of its last counted update, which the server "
                "builds on: take another folder, and enrol again"
            ) from error
        if not is_superseded:
            raise error
        _log.warning("%s", error)

    def _leave(self, visit: Visit, error: OffbeatError) -> None:
        """Give up a visit, and wait a moment before the next check-in."""
        _log.warning("%s", error)
        self._give_up(visit.number)
        time.sleep(jitter(self._connection.backoff.first_seconds))

    def _give_up(self, visit: int) -> None:
        # If the request is lost, the lease lapses.
        with suppress(OffbeatError):
            self._connection.send("POST", f"/v1/visits/{visit}/give-up")
