"""The viewers of the live page, and the producer of their events."""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

from offbeat_core.serving.console_log import event

from offbeat.service.live.run_history import RunHistory
from offbeat.service.refusal import Refusal

MOST_VIEWERS = 50
_SECONDS = 0.5  # between two events
_MAX_SHARE = 0.01  # of the time, spent on making events
_PING_SECONDS = 15.0
_PING = b": ping\n\n"


class _Event:
    """The state at one moment; viewers whose last event was the same share its bytes."""

    def __init__(self, server: str, state: str, seconds: float, history: RunHistory, number: int) -> None:
        self.number = number  # of the history's last entry
        self._server = server
        self._state = state
        self._seconds = seconds
        self._history = history
        self._bytes: dict[int | None, bytes] = {}

    def bytes(self, since: int | None) -> bytes:
        """Return the event with the history's entries after ``since``; None for all."""
        if since not in self._bytes:
            entries = {"whole": since is None, **self._history.between(since or 0, self.number)}
            history = json.dumps(entries, separators=(",", ":"))
            if len(self._bytes) == MOST_VIEWERS:  # of viewers that have left again
                self._bytes.clear()
            data = f'{{"seconds":{self._seconds:.3f},"state":{self._state},"history":{history}}}'
            self._bytes[since] = f"id: {self._server}-{self.number}\ndata: {data}\n\n".encode()
        return self._bytes[since]


class Viewers:
    """Sends each viewer the newest event, as fast as the viewer reads.

    ``produce`` makes each event once for all viewers: at most two a second, fewer if making one takes long, none while
    nothing changes, and none without viewers. A slow viewer skips events.

    ``state`` returns the current state without the time, ``now`` the run's time in seconds; ``wait_until_durable``
    waits until everything that the state shows is on disk.
    """

    def __init__(
        self,
        state: Callable[[], dict[str, Any]],
        history: RunHistory,
        now: Callable[[], float],
        wait_until_durable: Callable[[], Awaitable[None]],
    ) -> None:
        self._state = state
        self._history = history
        self._now = now
        self._wait_until_durable = wait_until_durable
        self._server = secrets.token_hex(4)  # an earlier server numbered its entries differently
        self._viewers = 0
        self._last: dict[str, Any] = {}  # the last state that is on disk
        self._durable = 0  # the number of the history's last entry in that state
        self._event: _Event | None = None
        self._text = ""
        self._has_viewers = asyncio.Event()
        self._changed = asyncio.Event()
        self.closed = asyncio.Event()

    def __len__(self) -> int:
        return self._viewers

    async def produce(self) -> None:
        """Make events while there are viewers; never returns."""
        while True:
            await self._has_viewers.wait()
            began = time.perf_counter()
            try:
                state, number, seconds = self._state(), self._history.number, self._now()
            except Exception as error:  # it must not keep clients from their work
                event("live_page_failed", logging.ERROR, problem=repr(error))
                state, number, seconds = {"problem": "the live page fails: see the log"}, self._durable, self._now()
            took = time.perf_counter() - began
            try:
                await self._wait_until_durable()
                self._last, self._durable = state, number
            except Refusal as refusal:
                state = {**self._last, "problem": str(refusal)}
            self._show(state, seconds)
            await asyncio.sleep(max(_SECONDS, took / _MAX_SHARE))

    def _show(self, state: dict[str, Any], seconds: float) -> None:
        """Make the event of a state, unless nothing has changed since the last event."""
        text = json.dumps(state, separators=(",", ":"))
        before = self._event
        if before is not None and text == self._text and before.number == self._durable:
            return
        self._text = text
        self._event = _Event(self._server, text, seconds, self._history, self._durable)
        self._changed.set()
        self._changed = asyncio.Event()

    @contextmanager
    def place(self) -> Generator[None]:
        """Hold one of the viewers' places within the context; ``busy`` if all are taken."""
        if self._viewers >= MOST_VIEWERS:
            raise Refusal(
                "busy", f"{MOST_VIEWERS} live pages are open already: close one of them", {"Retry-After": "30"}
            )
        self._viewers += 1
        self._has_viewers.set()
        try:
            yield
        finally:
            self._viewers -= 1
            if not self._viewers:
                self._has_viewers.clear()
                self._event = None

    async def events(self, last_id: str, may_view: Callable[[], bool]) -> AsyncIterator[bytes]:
        """Yield the bytes of events, to a viewer with a place that may view.

        ``last_id`` is the id of the last event that the viewer has; empty for none.
        """
        server, _, number = last_id.partition("-")
        since = int(number) if server == self._server and number.isdecimal() and len(number) < 19 else None
        seen: _Event | None = None
        while may_view():
            newest, changed = self._event, self._changed
            if newest is not None and newest is not seen:
                yield newest.bytes(since)
                seen, since = newest, newest.number
                continue
            try:
                async with asyncio.timeout(_PING_SECONDS):
                    await changed.wait()
            except TimeoutError:
                yield _PING

    def close(self) -> None:
        """End all streams."""
        self.closed.set()
