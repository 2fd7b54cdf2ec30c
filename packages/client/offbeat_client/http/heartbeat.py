"""Heartbeats while the main thread trains or uploads."""

import logging
import threading
from types import TracebackType
from typing import Self

from offbeat_client.http.connection import Backoff, Connection, read_answer
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import LONGEST_WAIT, ServiceError
from offbeat_core.messages import Beat

_NO_LEASE_SECONDS = 30.0
_LEAST_SECONDS = 0.1
_READ_SECONDS = 10.0

_log = logging.getLogger(__name__)


class Heartbeat:
    """A context in which a thread renews a visit's lease.

    Heartbeats are a third of the lease apart; a lost one is harmless. ``urgent`` is set when the server wants the
    update early, or no longer; ``wanted`` says whether it would still count, as far as the client knows.
    """

    def __init__(
        self, connection: Connection, visit: int, lease_seconds: float | None, urgent: threading.Event | None = None
    ) -> None:
        self.wanted = True
        self._connection = connection
        self._path = f"/v1/visits/{visit}/heartbeat"
        self._lease_seconds = lease_seconds
        self._urgent = urgent or threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat {visit}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        # Most visits are over before the first heartbeat, and need no HTTP client.
        if self._ended.wait(self._seconds()):
            return
        main = self._connection  # whose HTTP client belongs to the main thread
        with Connection(main.url, main.token, main.ca, Backoff(attempts=1), _READ_SECONDS) as connection:
            while self.wanted and not self._ended.wait(self._beat(connection)):
                pass

    def _beat(self, connection: Connection) -> float:
        """Send a heartbeat; return how many seconds later the next is due."""
        try:
            beat = read_answer(connection.send("POST", self._path), Beat)
            self._lease_seconds = beat.lease_seconds
            self.wanted = beat.wanted
            if beat.urgent:
                self._urgent.set()
        except OffbeatError as error:
            if isinstance(error, ServiceError) and error.kind == "no-such-visit":
                self.wanted = False
            _log.debug("heartbeat: %s", error)
        if not self.wanted:
            self._urgent.set()
        return self._seconds()

    def _seconds(self) -> float:
        if self._lease_seconds is None:
            return _NO_LEASE_SECONDS
        return min(max(self._lease_seconds / 3, _LEAST_SECONDS), LONGEST_WAIT)
