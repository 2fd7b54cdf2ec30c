"""Limit of connections per address.

Granian accepts connections itself and has one limit for all of them, so one address could take them all. But it runs in
this process, so its connections are among the process's descriptors: the excess ones of an address are shut down here,
and Granian closes them.
"""

import asyncio
import logging
import os
import socket
import stat
import time
from collections import Counter
from collections.abc import Generator, Hashable
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from offbeat_core.serving.console_log import event
from starlette.types import Scope

_SECONDS = 0.25  # between two looks
_SECONDS_IF_CROWDED = 0.05
_MAX_SHARE = 0.02  # of the time
_MAX_SHARE_IF_CROWDED = 0.1
_DESCRIPTORS = next((path for path in (Path("/proc/self/fd"), Path("/dev/fd")) if path.is_dir()), None)

_LEAST_PER_TOKEN = 8

Key = TypeVar("Key", bound=Hashable)

Peer = tuple[str, int]
"""A client's end of a connection: address and port."""


class _Socket(NamedTuple):
    descriptor: int
    inode: int


@dataclass
class _Open:
    peer: Peer
    since: float
    is_shut: bool = False  # Granian is about to close it


class Connections:
    """Counts the connections of each address, and shuts down the excess ones.

    They are chosen in this order: those without a request with a valid token so far, the oldest first; those that have
    been idle, the longest first; those with a request under way, the newest first. Of each token only the last
    ``max_per_token`` connections count as such with one. ``port`` is the server's.
    """

    def __init__(self, port: int, max_per_address: int) -> None:
        self._port = port
        self.max_per_address = max_per_address
        self._open: dict[_Socket, _Open] = {}
        self._requests: dict[Peer, int] = {}  # under way
        self._last: dict[Peer, tuple[float, str]] = {}  # when a request with a valid token came, and the token

    @property
    def max_per_token(self) -> int:
        """The most connections that one token keeps, and the most requests at once."""
        return max(self.max_per_address // 4, _LEAST_PER_TOKEN)

    async def keep_watch(self) -> None:
        """Shut down excess connections again and again; never returns."""
        while True:
            began = time.perf_counter()
            is_crowded = self.shut_down_excess() > 0
            took = time.perf_counter() - began
            await asyncio.sleep(pause_after(took, is_crowded=is_crowded))

    def request(self, peer: Peer) -> "counted[Peer]":
        """Record that a request is under way within the context."""
        return counted(self._requests, peer)

    def trust(self, peer: Peer, token: str) -> None:
        """Record that a request over this connection had a valid token."""
        if _DESCRIPTORS is not None:
            self._last[peer] = time.monotonic(), token

    def shut_down_excess(self) -> int:
        """Shut down the excess connections; return their number."""
        if _DESCRIPTORS is None:
            return 0
        with suppress(OSError):  # too many files are open in the whole system
            names = os.listdir(_DESCRIPTORS)  # noqa: PTH208 — half the time
            # Each connection with a token adds to ``_last``, which ``_look`` tidies up.
            if len(names) <= self.max_per_address and len(self._last) <= 2 * self.max_per_address:
                return 0
            self._look(names)
        by_address: dict[str, list[tuple[_Socket, _Open]]] = {}
        for place, found in self._open.items():
            if found.is_shut:
                continue
            by_address.setdefault(found.peer[0], []).append((place, found))
        closed = 0
        for address, connections in by_address.items():
            excess = len(connections) - self.max_per_address
            if excess <= 0:
                continue
            trusted = self._trusted()
            connections.sort(key=lambda connection: self._worth(connection[1], trusted))
            for place, found in connections[:excess]:
                found.is_shut = True
                closed += _shut_down(place)
            event("connections_closed", logging.WARNING, address=address, number=excess)
        return closed

    def _trusted(self) -> dict[Peer, float]:
        """Return when connections last had a valid token, for each token's last ones."""
        trusted: dict[Peer, float] = {}
        numbers: Counter[str] = Counter()
        for peer, (last, token) in sorted(self._last.items(), key=lambda item: -item[1][0]):
            numbers[token] += 1
            if numbers[token] <= self.max_per_token:
                trusted[peer] = last
        return trusted

    def _worth(self, connection: _Open, trusted: dict[Peer, float]) -> tuple[bool, float, float]:
        is_busy = connection.peer in self._requests
        last = trusted.get(connection.peer, -1.0)  # −1: never
        return is_busy, -connection.since if is_busy else last, connection.since

    def _look(self, names: list[str]) -> None:
        now, before = time.monotonic(), self._open
        self._open = {}
        for name in names:
            descriptor = int(name)
            with suppress(OSError):  # closed by now
                found = os.fstat(descriptor)
                if not stat.S_ISSOCK(found.st_mode):
                    continue
                place = _Socket(descriptor, found.st_ino)
                if (known := before.get(place)) is not None:
                    self._open[place] = known
                elif (peer := self._peer(descriptor)) is not None:
                    self._open[place] = _Open(peer, now)
        peers = {connection.peer for connection in self._open.values()}
        self._last = {peer: last for peer, last in self._last.items() if peer in peers}

    def _peer(self, descriptor: int) -> Peer | None:
        """Return the client's end of a connection to the server; None for another socket."""
        with _duplicate(descriptor) as found:
            if found.family not in (socket.AF_INET, socket.AF_INET6) or found.getsockname()[1] != self._port:
                return None
            return found.getpeername()[:2]


class counted(Generic[Key]):  # noqa: N801 — it reads as a function; a generator takes several times its memory
    """Count one more of a key within the context."""

    __slots__ = ("_key", "_numbers")

    def __init__(self, numbers: dict[Key, int], key: Key) -> None:
        self._numbers = numbers
        self._key = key

    def __enter__(self) -> None:
        self._numbers[self._key] = self._numbers.get(self._key, 0) + 1

    def __exit__(self, *_: object) -> None:
        self._numbers[self._key] -= 1
        if not self._numbers[self._key]:
            del self._numbers[self._key]


def pause_after(seconds: float, *, is_crowded: bool) -> float:
    """Return the pause in seconds after a look that took ``seconds``.

    The pause keeps looks to a small share of the time.
    """
    if is_crowded:
        return max(_SECONDS_IF_CROWDED, seconds / _MAX_SHARE_IF_CROWDED)
    return max(_SECONDS, seconds / _MAX_SHARE)


def peer_of(scope: Scope) -> Peer:
    """Return the client's end of a request's connection."""
    address, port = scope.get("client") or ("", 0)
    return str(address), int(port)


def _shut_down(place: _Socket) -> bool:
    """Shut down a connection; return whether it was done.

    A connection whose descriptor has been reused is left alone.
    """
    with suppress(OSError), _duplicate(place.descriptor) as connection:
        if os.fstat(connection.fileno()).st_ino == place.inode:
            connection.shutdown(socket.SHUT_RDWR)
            return True
    return False


@contextmanager
def _duplicate(descriptor: int) -> Generator[socket.socket]:
    """Duplicate a socket's descriptor, which Granian may close at any moment."""
    copy = os.dup(descriptor)
    try:
        duplicate = socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise
    with closing(duplicate):
        yield duplicate
