"""Snapshots of a run for the live page, which asks for them again and again."""

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from offbeat.service.live.run_history import RunHistory

MOST_PAGES = 50
_SECONDS = 0.5  # between two snapshots
_MAX_SHARE = 0.01  # of the time, spent on making snapshots
_WANTED_SECONDS = 10.0  # since a page of sites was asked for


@dataclass
class _Snapshot:
    """The run at one moment, as JSON."""

    number: int  # of the history's last entry
    seconds: float  # since the run began
    state: str
    sites: dict[int, str]  # pages of sites, by the client before the first one


class Snapshots:
    """Answers the live page: state, sites and history of one moment.

    A snapshot serves all who ask within half a second, or longer if making one takes long. It holds the pages of sites
    that were asked for lately; a question for another page makes the next one at once.

    ``state`` returns the current state without the time, ``sites`` the sites behind a client, ``now`` the run's time in
    seconds; ``wait_until_durable`` waits until everything that the state shows is on disk.
    """

    def __init__(
        self,
        state: Callable[[], dict[str, Any]],
        sites: Callable[[int], str],
        history: RunHistory,
        now: Callable[[], float],
        wait_until_durable: Callable[[], Awaitable[None]],
    ) -> None:
        self._state = state
        self._sites = sites
        self._history = history
        self._now = now
        self._wait_until_durable = wait_until_durable
        self._server = secrets.token_hex(4)  # an earlier server numbered its entries differently
        self._making = asyncio.Lock()
        self._newest: _Snapshot | None = None
        self._until = 0.0  # the newest snapshot is shown
        self._wanted: dict[int, float] = {}  # when each page of sites was asked for last

    async def answer(self, last_id: str, after: int, **facts: str) -> bytes:
        """Return a snapshot as JSON, with the page of sites behind a client.

        ``last_id`` is the id of the last answer that the viewer has, empty for none; its history is not repeated.
        ``facts`` go into the answer.

        Raises:
            Refusal: The log cannot be written.
        """
        async with self._making:
            moment = time.monotonic()
            self._wanted.pop(after, None)
            self._wanted[after] = moment
            newest = self._newest
            if newest is None or moment >= self._until or after not in newest.sites:
                newest = await self._make(moment)
        server, _, number = last_id.partition("-")
        is_known = server == self._server and number.isdecimal() and len(number) < 19
        entries = {"whole": not is_known, **self._history.between(int(number) if is_known else 0, newest.number)}
        head = {"id": f"{self._server}-{newest.number}", "seconds": round(newest.seconds, 3), **facts}
        parts = f'"state":{newest.state},"sites":{newest.sites[after]},"history":{_text(entries)}'
        return f"{_text(head)[:-1]},{parts}}}".encode()

    async def _make(self, moment: float) -> _Snapshot:
        began = time.perf_counter()
        lately = [after for after, then in self._wanted.items() if moment - then < _WANTED_SECONDS][-MOST_PAGES:]
        self._wanted = {after: self._wanted[after] for after in lately}
        sites = {after: self._sites(after) for after in lately}
        made = _Snapshot(self._history.number, self._now(), _text(self._state()), sites)
        took = time.perf_counter() - began
        await self._wait_until_durable()
        self._newest, self._until = made, moment + max(_SECONDS, took / _MAX_SHARE)
        return made


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
