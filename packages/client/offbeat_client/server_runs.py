"""A site's part in all of its runs on one server.

The site asks the server in which run it has work, and does one visit there. Each run has a folder in
``FOLDER/runs``, which holds what a client's folder holds.
"""

import logging
import math
import time
from contextlib import suppress
from pathlib import Path

from offbeat_client.client_folder.identity import ClientFolder, Identity
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.http.connection import Connection, jitter
from offbeat_client.http.enrolment import declare
from offbeat_client.participant import WAIT_SECONDS, Participant
from offbeat_client.receipt_log import ReceiptLog
from offbeat_client.user_client import MakeClient, UserClient, make_user_client
from offbeat_core.errors import OffbeatError
from offbeat_core.files import sync_folder
from offbeat_core.http.service_errors import ServiceError, UnreachableError
from offbeat_core.messages import CheckedIn, CheckInRequest, Work, WorkRequest

_ATTEMPTS = 3  # in a run at a time: while it cannot answer, others may have work
_RETRY_SECONDS = 120.0  # until a run that cannot answer is asked again

_log = logging.getLogger(__name__)


class ServerRuns:
    """A site of a server of several runs, one turn at a time, until ``finished``.

    A run in which the user's code fails, or which refuses the client for good, is left to the others. So is one that
    does not answer, for some time.

    Args:
        connection: To the server, with the site's token.
        folder: The site's.
        make_client: Makes the user's client in a run.
    """

    def __init__(self, connection: Connection, folder: Path, make_client: MakeClient) -> None:
        self.finished = False
        self.receipts = ReceiptLog()
        self._connection = connection
        self._folder = folder / "runs"
        self._make_client = make_client
        self._participants: dict[str, Participant] = {}
        self._failures: dict[str, str] = {}
        self._made: dict[str, UserClient] = {}
        self._is_cut_off = False  # from the server, as far as known
        # An update from before a kill comes first: the server counts on it.
        self._retry_at = {path.parent.name: 0.0 for path in sorted(self._folder.glob("*/upload.json"))}

    def take_turn(self, *, is_last: bool) -> bool | None:
        """Do a visit in a run with work; return whether it counted, if known.

        ``is_last`` does not matter here: which run is next, the server decides after each update.
        """
        due = min(self._retry_at, key=self._retry_at.__getitem__, default=None)
        left = math.inf if due is None else self._retry_at[due] - time.monotonic()
        if due is not None and left <= 0 and not self._is_cut_off:
            del self._retry_at[due]
            return self._turn(due, None)
        wait_seconds = min(WAIT_SECONDS, max(left, 0.0))
        request = WorkRequest(wait_seconds=wait_seconds, without=(*self._failures, *self._retry_at))
        work = self._connection.ask("POST", "/v1/work", Work, request, wait_seconds=wait_seconds)
        self._is_cut_off, self.finished = False, work.finished
        if work.run is not None:
            return self._turn(work.run, work.client)
        if not work.finished:
            self.receipts.note_idle("no work now; the client keeps asking")
            time.sleep(jitter(self._connection.backoff.first_seconds))
        return None

    def check(self) -> None:
        """Raise ``OffbeatError`` if runs have failed."""
        if self._failures:
            raise OffbeatError(f"all runs are over; the client has failed in {'; in '.join(self._failures.values())}")

    def _turn(self, name: str, client: int | None) -> bool | None:
        _log.info("serving run %s", name)
        try:
            participant = self._participants.get(name)
            if participant is None:
                participant = self._participants[name] = self._join(name, client)
            participant.connection.token = self._connection.token  # may be another one by now
            return participant.take_turn(is_last=True)
        except OffbeatError as error:
            problem = f"{self._connection.url}/runs/{name}: {error}"
            if isinstance(error, UnreachableError):  # the server ends the wait, not the run
                self._is_cut_off, self._retry_at[name] = True, 0.0
                _log.warning("%s", problem)
                return None
            if isinstance(error, ServiceError) and error.may_pass:
                self._retry_at[name] = time.monotonic() + _RETRY_SECONDS
                _log.warning("%s; the client asks there again in %g seconds", problem, _RETRY_SECONDS)
                return None
            _log.error("%s; until it is started again, the client serves its other runs only", problem)
            self._failures[name] = problem
            if name not in self._participants:
                self._give_up(name)
            return None

    def _join(self, name: str, client: int | None) -> Participant:
        """Return the participant of a run that has work, or a pending update."""
        home, connection = ClientFolder(self._folder / name), self._below(name)
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self._folder, self._folder.parent):
            sync_folder(folder)
        identity = home.identity(connection.url)
        if identity is None:
            if client is None:
                raise OffbeatError(f"{home.path} has an update but no identity.json: put it back, or remove the folder")
            identity = Identity(connection.url, client, token="")
            home.keep_identity(identity)
        if client not in (None, identity.client):
            raise OffbeatError(
                f"{home.path} belongs to client {identity.client} of the run, but the server says {client}: "
                "is it a new run of an old name? Then remove the folder"
            )
        if name not in self._made:
            self._made[name] = make_user_client(self._make_client, identity.client, name)
        made, outbox = self._made[name], Outbox(home.path)
        fit, measure, connection.supports = made.fit, made.evaluate, made.supports
        declare(connection, home, identity, made.examples)
        participant = Participant(
            connection, home.path, identity.client, fit, measure, outbox,
            receipts=self.receipts, wait_seconds=0.0, longest_pause=connection.backoff.first_seconds,
        )  # fmt: skip
        participant.introduce()
        # The server does not wait for work of runs that need more than the site supports.
        self._connection.add_support(made.supports)
        return participant

    def _give_up(self, name: str) -> None:
        """Free the visit that waits for a participant that cannot be made."""
        connection = self._below(name)
        with suppress(OffbeatError):  # then the lease lapses
            visit = connection.ask("POST", "/v1/checkin", CheckedIn, CheckInRequest()).visit
            if visit is not None:
                connection.send("POST", f"/v1/visits/{visit.number}/give-up")

    def _below(self, name: str) -> Connection:
        connection = self._connection.below(f"/runs/{name}")
        connection.backoff = connection.backoff.ending(_ATTEMPTS)
        return connection
