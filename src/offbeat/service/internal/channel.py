"""One end of a connection between front and leader: frames and keep-alive.

A frame is two sizes (4 bytes each, big-endian: of the rest of the frame, and of the JSON in it), the JSON, the bodies.
"""

import asyncio
import struct
from collections import deque
from pathlib import Path
from typing import cast

from offbeat.service.internal.batches import MOST_MESSAGES, ProtocolError

Address = Path | tuple[str, int]
"""A Unix socket's path, or a host and a port, where TLS is spoken."""

LARGEST_FRAME = 2**22
"""Bytes of a frame after its sizes; the largest message has 3 MiB."""

TICK_SECONDS = 0.5
"""After so long without a frame an end sends an empty one."""

_LARGEST_FIRST_FRAME = 2**12  # until the other end has said who it is
_SILENT_TICKS = 5  # after which the other end counts as lost
_SLOW_TICKS = 20  # for which the other end may take nothing of what is sent
_USUAL_FRAME = 2**18  # bytes; nothing is added to a longer frame, so that most fit into the processor's cache
_BUFFER = 2**19  # bytes; frames that are longer still get a longer buffer for a time
_SIZES = struct.Struct(">II")


class Channel(asyncio.BufferedProtocol):
    """One end of a connection, which sends messages in batches.

    It calls ``opened`` at the start, ``received`` for each frame, and ``lost`` at the end.

    All messages that were sent in one turn of the event loop go in one frame; while the other end takes nothing, they
    are collected. Silence is counted in ticks and not in seconds, so that an end that was stopped itself first reads
    what has arrived.

    Args:
        opening: The beginning of each batch.
    """

    def __init__(self, opening: bytes) -> None:
        self.is_closing = True  # or not yet open
        self._opening = opening
        self._largest = _LARGEST_FIRST_FRAME
        self._buffer = memoryview(bytearray(self._largest + _SIZES.size))
        self._filled = 0
        self._queue: deque[tuple[bytes, bytes]] = deque()
        self._is_flush_due = self._is_paused = self._has_sent = False
        self._silent = self._slow = 0
        self._problem: str | None = None
        self._loop = asyncio.get_running_loop()

    def opened(self) -> None:
        """Use the new connection."""

    def received(self, head: bytes, bodies: memoryview) -> None:
        """Take a batch; ``ProtocolError`` closes the connection."""
        raise NotImplementedError

    def lost(self, problem: str) -> None:
        """Act on the end of the connection; ``problem`` says why it ended."""
        raise NotImplementedError

    def trust(self, opening: bytes) -> None:
        """Accept frames of the full size, and change the beginning of batches.

        The other end has said who it is.
        """
        self._largest = LARGEST_FRAME
        self._opening = opening

    def send(self, message: bytes, body: bytes) -> None:
        """Send a message, soon and with others."""
        self._queue.append((message, body))
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def close(self, problem: str) -> None:
        """Send what is due, and close the connection because of a problem."""
        if not self.is_closing:
            self._flush()
            self.is_closing = True
            self._problem = problem
            self._transport.close()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102
        self._transport = cast(asyncio.Transport, transport)
        self.is_closing = False
        self._transport.set_write_buffer_limits(high=_BUFFER)
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)
        self.opened()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: D102
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:  # noqa: D102
        self._silent = 0
        self._filled += nbytes
        begin, end = 0, self._filled
        needed = _SIZES.size
        try:
            while not self.is_closing and end - begin >= _SIZES.size:
                size, head = _SIZES.unpack_from(self._buffer, begin)
                if size > self._largest or head > size:
                    raise ProtocolError(f"a frame of {size} bytes with {head} of JSON")
                needed = _SIZES.size + size
                if end - begin < needed:
                    break
                first = begin + _SIZES.size
                begin += needed
                needed = _SIZES.size
                self.received(bytes(self._buffer[first : first + head]), self._buffer[first + head : begin])
        except ProtocolError as error:
            self.close(str(error))
            return
        self._make_room(begin, needed)

    def eof_received(self) -> None:  # noqa: D102
        return

    def pause_writing(self) -> None:  # noqa: D102
        self._is_paused = True

    def resume_writing(self) -> None:  # noqa: D102
        self._is_paused = False
        self._slow = 0
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: D102
        self.is_closing = True
        self._timer.cancel()
        self._queue.clear()
        self.lost(self._problem or (str(exc) if exc else "the connection was closed"))

    def _make_room(self, begin: int, needed: int) -> None:
        """Move the rest behind ``begin`` to the start, with room for ``needed`` bytes."""
        rest = self._filled - begin
        usual = _SIZES.size + min(self._largest, _BUFFER)
        if needed > len(self._buffer) or (needed <= usual != len(self._buffer) and rest <= usual):
            room = memoryview(bytearray(max(needed, usual)))
            room[:rest] = self._buffer[begin : self._filled]
            self._buffer = room
        elif rest and begin:
            self._buffer[:rest] = self._buffer[begin : self._filled]
        self._filled = rest

    def _flush(self) -> None:
        self._is_flush_due = False
        while self._queue and not self._is_paused and not self.is_closing:
            self._write(*self._next_batch())

    def _next_batch(self) -> tuple[list[bytes], list[bytes], int]:
        """Return a frame's messages, their bodies, and the bytes of the bodies."""
        messages: list[bytes] = []
        bodies: list[bytes] = []
        total = size = 0
        while self._queue and len(messages) < MOST_MESSAGES and total < _USUAL_FRAME:
            message, body = self._queue.popleft()
            messages.append(message)
            if body:
                bodies.append(body)
                size += len(body)
            total += len(message) + len(body)
        return messages, bodies, size

    def _write(self, messages: list[bytes], bodies: list[bytes], size: int) -> None:
        head = b"%b%b]}" % (self._opening, b",".join(messages))
        self._has_sent = True
        self._transport.writelines([_SIZES.pack(len(head) + size, len(head)) + head, *bodies])

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_SECONDS, self._tick)
        if self.is_closing:  # it was asked to close a tick ago
            self._transport.abort()
            return
        self._silent += 1
        self._slow += self._is_paused
        if self._silent > _SILENT_TICKS:
            self.close("it was silent for too long")
        elif self._slow > _SLOW_TICKS:
            self.close("it reads too slowly")
        elif not self._has_sent and not self._is_paused:
            self._write([], [], 0)
        self._has_sent = False


def shown(address: Address) -> str:
    """Return an address as people write it."""
    return str(address) if isinstance(address, Path) else f"{address[0]}:{address[1]}"
