"""The client's life: check in, download, train, upload, again and again."""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast

from offbeat.algorithms.components.checks import check_count
from offbeat.errors import OffbeatError
from offbeat.service.client.connection import Connection
from offbeat.service.client.contract import Client, Fit, Visit
from offbeat.service.client.download import download
from offbeat.service.client.enrolment import declare, identify, renew
from offbeat.service.client.folder import Folder
from offbeat.service.client.heartbeat import Heartbeat
from offbeat.service.client.messages import CheckIn, read_check_in
from offbeat.service.client.outbox import Outbox, Pending
from offbeat.service.client.probe import probe
from offbeat.service.client.refusal import ServiceError
from offbeat.service.client.retry import Backoff, jitter
from offbeat.service.client.upload import upload
from offbeat.service.client.work import put_update, train
from offbeat.user_code_errors import failure

_WAIT_SECONDS = 20.0
# The server has looked at the update and will never take it. Other refusals are of the client, or may pass.
_REFUSED = (400, 413, 422)

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
) -> int:
    """Take part in a run until it is over.

    May be killed at any time; the same call then goes on where it was.

    Args:
        url: The server's, such as ``https://host:8443``.
        make_client: Makes the user's client, a class with ``fit`` or a function, from the client's number.
        folder: Where the client keeps who it is, its unacknowledged update and its memory; one for each client.
        enrolment_token: Needed as long as the folder holds no client.
        name: The client's name, for people.
        ca: A file with the certificates to trust; None for those of the system.
        visits: After how many acknowledged updates to stop; None for the end of the run.
        backoff: When to try again if the server cannot be reached; by default, once the client has enrolled, for ever,
            at least each 30 s.

    Returns:
        How many updates of this call counted.

    Raises:
        OffbeatError: The server refuses the client or cannot be reached, the client's code fails, its memory is lost,
            or the folder cannot be used.
    """
    with Folder(folder) as home, Connection(url, ca=ca, backoff=backoff) as connection:
        try:
            identity = identify(connection, home, enrolment_token, name)
            made = _make(make_client, identity.client)
            connection.supports = "needs_loss, corrects_gradients" if _corrects_gradients(made) else "needs_loss"
            participant = _Participant(connection, folder, identity.client, _fit(made))
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


def _make(make_client: Callable[[int], Client | Fit], client: int) -> Client | Fit:
    try:
        return make_client(client)
    except OffbeatError:
        raise
    except Exception as error:
        raise failure("making the client failed", error) from error


def _examples(made: Client | Fit) -> int | None:
    """Return how many examples the user's client holds, None if it does not say."""
    examples: Any = getattr(made, "examples", None)
    if examples is None:
        return None
    try:
        check_count("the client's examples", examples)
    except ValueError as error:
        raise OffbeatError(str(error)) from None
    return int(examples)


def _corrects_gradients(made: Client | Fit) -> bool:
    """Return whether the user's client says that it adds ``visit.offset`` to each local gradient."""
    return getattr(made, "corrects_gradients", False) is True


def _fit(made: Client | Fit) -> Fit:
    fit: Any = getattr(made, "fit", made)
    if not callable(fit):
        raise OffbeatError(
            f"what makes the client must return a function or an object with fit, got {type(made).__name__}"
        )
    return cast("Fit", fit)


class _Participant:
    """One client at one server, one turn after the other.

    Attributes:
        finished: Whether the run is over.
    """

    def __init__(self, connection: Connection, folder: Path, client: int, fit: Fit) -> None:
        self.finished = False
        self._connection = connection
        self._folder = folder
        self._client = client
        self._fit = fit
        self._outbox = Outbox(folder)
        self._next: Visit | None = None  # came with the last receipt

    def introduce(self) -> None:
        """Report how fast the client is, if nothing of it has counted and the server wants to know."""
        if self._outbox.pending() is None and self._outbox.kept().since is None:
            probe(self._connection, self._folder, self._client, self._fit, self._outbox)

    def take_turn(self, *, is_last: bool) -> bool | None:
        """Check in, do the visit, deliver its update; return whether it counted, None if nothing was delivered.

        Args:
            is_last: Whether there will be no turn after the next update.
        """
        # An update from before a kill comes first: its receipt decides about the memory that the next one needs.
        if pending := self._outbox.pending():
            return self._deliver(pending, ask_first=True, is_last=is_last)
        check_in = self._check_in()
        self.finished = check_in.finished
        if check_in.visit is not None and not self.finished:
            pending = self._work(check_in.visit)
            return None if pending is None else self._deliver(pending, ask_first=False, is_last=is_last)
        if not self.finished:
            # Clients that were sent away together should not come back together.
            time.sleep(check_in.retry_after_seconds + jitter(check_in.retry_after_seconds / 2))
        return None

    def _check_in(self) -> CheckIn:
        if self._next is not None:
            visit, self._next = self._next, None
            return CheckIn(visit, 0.0, finished=False)
        answer = self._connection.ask("POST", "/v1/checkin", {"wait_seconds": _WAIT_SECONDS}, _WAIT_SECONDS)
        return read_check_in(answer, self._client)

    def _work(self, visit: Visit) -> Pending | None:
        """Train and make the update; None if nobody wants it any more."""
        _log.info("visit %d: %d steps from version %d", visit.number, visit.plan.steps, visit.version)
        with Heartbeat(self._connection, visit.number, visit.lease_seconds, visit.urgent) as heartbeat:
            try:
                model = download(self._connection, visit.version, self._folder)
            except ServiceError as error:
                if error.status != HTTPStatus.NOT_FOUND:
                    raise
                _log.warning("%s", error)
                self._give_up(visit.number)
                time.sleep(jitter(self._connection.backoff.first_seconds))
                return None
            try:
                result, seconds = train(visit, model, self._fit, self._outbox)
                if heartbeat.wanted:
                    return put_update(visit, model, result, seconds, self._outbox)
            except OffbeatError:
                self._give_up(visit.number)
                raise
        _log.info("visit %d: the server does not want the update any more", visit.number)
        self._give_up(visit.number)
        return None

    def _deliver(self, pending: Pending, *, ask_first: bool, is_last: bool) -> bool | None:
        """Upload an update; return whether it counted, None if the server will not have it."""
        try:
            with Heartbeat(self._connection, pending.visit, pending.lease_seconds):
                body = self._outbox.body(pending.visit)
                receipt = upload(
                    self._connection, pending, body, self._client, ask_first=ask_first, check_in=not is_last
                )
        except ServiceError as error:
            if error.status in _REFUSED or error.kind in ("no-such-visit", "other-upload"):
                if error.kind != "no-such-visit":
                    self._give_up(pending.visit)
                self._outbox.drop()
            if error.kind == "lost-memory":
                raise OffbeatError(
                    f"{self._folder} has lost what the client remembers of its last counted update, which the server "
                    "builds on: take another folder, and enrol again"
                ) from error
            if error.kind in ("no-such-visit", "other-upload"):
                _log.warning("%s", error)
                return None
            raise
        self._outbox.acknowledge(pending, receipt.counted, receipt.upload_seconds)
        if receipt.following is not None:
            self._next, self.finished = receipt.following.visit, receipt.following.finished
        _log.info("visit %d: %s", pending.visit, "counted" if receipt.counted else "too late to count")
        return receipt.counted

    def _give_up(self, visit: int) -> None:
        # If it is not heard, the lease lapses.
        with suppress(OffbeatError):
            self._connection.send("POST", f"/v1/visits/{visit}/give-up")
