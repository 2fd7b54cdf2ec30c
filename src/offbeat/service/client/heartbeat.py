"""Heartbeats while the main thread trains or uploads."""

import logging
import threading
from types import TracebackType
from typing import Self

from offbeat.errors import OffbeatError
from offbeat.service.client.connection import Connection, answer
from offbeat.service.client.messages import understanding
from offbeat.service.client.refusal import ServiceError
from offbeat.service.client.retry import Backoff

_NO_LEASE_SECONDS = 30.0
_LEAST_SECONDS = 0.1
_READ_SECONDS = 10.0

_log = logging.getLogger(__name__)


class Heartbeat:
    """Within it, a thread renews a visit's lease; a beat that is lost is no harm, the next one follows.

    Args:
        connection: Whose server and token are used; the thread has an HTTP client of its own.
        visit: The visit's number.
        lease_seconds: As in the visit; a third of it is from one beat to the next.
        urgent: Is set when the server asks for what there is, or wants nothing any more.

    Attributes:
        wanted: Whether the update would still count, as far as is known.
    """

    def __init__(
        self, connection: Connection, visit: int, lease_seconds: float | None, urgent: threading.Event | None = None
    ) -> None:
        self.wanted = True
        self._from = connection
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
        # Most visits are over before the first beat, and then no client is needed.
        if self._ended.wait(self._seconds()):
            return
        with Connection(
            self._from.url, self._from.token, self._from.ca, Backoff(attempts=1), _READ_SECONDS
        ) as connection:
            while self.wanted and not self._ended.wait(self._beat(connection)):
                pass

    def _beat(self, connection: Connection) -> float:
        """Send one; return how many seconds later the next is due."""
        try:
            said = answer(connection.send("POST", self._path))
            with understanding("answer to a heartbeat"):
                self._lease_seconds = None if said["lease_seconds"] is None else float(said["lease_seconds"])
                if said["urgent"]:
                    self._urgent.set()
                if not said["wanted"]:
                    self._unwanted()
        except OffbeatError as error:
            if isinstance(error, ServiceError) and error.kind == "no-such-visit":
                self._unwanted()
            _log.debug("heartbeat: %s", error)
        return self._seconds()

    def _unwanted(self) -> None:
        self.wanted = False
        self._urgent.set()

    def _seconds(self) -> float:
        return _NO_LEASE_SECONDS if self._lease_seconds is None else max(self._lease_seconds / 3, _LEAST_SECONDS)
