"""Connections between processes in virtual time: bytes arrive in order, late, in other pieces than they were sent."""

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, cast

from tests.cluster.virtual_loop import Process, VirtualLoop, here

Factory = Callable[[], asyncio.BufferedProtocol]


class Wires:
    """All connections of the world, with their listeners by address.

    Attributes:
        cut: The names of processes from which, and at which, nothing arrives now.
    """

    def __init__(self, loop: VirtualLoop, random: Random, mean_seconds: float = 0.002) -> None:
        self.loop = loop
        self.random = random
        self.cut: set[str] = set()
        self._mean_seconds = mean_seconds
        self._listeners: dict[Any, tuple[Factory, Process]] = {}
        self._ends: list[End] = []

    def listen(self, address: Any, factory: Factory) -> "Listener":
        """Accept connections at an address, in the process that calls this."""
        process = here()
        assert process is not None
        if address in self._listeners:
            raise OSError(f"{address} is in use")
        self._listeners[address] = (factory, process)
        return Listener(self, address)

    def forget(self, address: Any) -> None:
        """Accept no more connections at an address."""
        self._listeners.pop(address, None)

    async def connect(self, address: Any, factory: Factory) -> "tuple[End, asyncio.BufferedProtocol]":
        """Connect from the process that calls this; ``OSError`` if nobody listens there."""
        process = here()
        assert process is not None
        await asyncio.sleep(self.delay())
        accept, server = self._listeners.get(address, (None, None))
        if accept is None or server is None:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        while self.is_cut(process, server):
            await asyncio.sleep(0.1)
        near, far = End(self, process), End(self, server)
        near.peer, far.peer = far, near
        self._ends += [near, far]
        near.begin(factory())
        # Also a stopped process gets connections, and finds them when it is continued.
        self.loop.call_soon(lambda: far.begin(accept()), context=server.context)
        return near, cast(asyncio.BufferedProtocol, near.protocol)

    def lose(self, process: Process) -> None:
        """Close all connections and listeners of a process that was killed."""
        self._listeners = {address: kept for address, kept in self._listeners.items() if kept[1] is not process}
        for end in self._ends:
            if end.process is process and not end.is_lost:
                end.is_lost = True
                end.peer.end_later(ConnectionResetError("the other end was killed"))
        self._ends = [end for end in self._ends if not end.is_lost]

    def is_cut(self, one: Process, other: Process) -> bool:
        """Return whether nothing arrives from one process at another now."""
        return one.name in self.cut or other.name in self.cut

    def delay(self) -> float:
        """Return how long the next bytes take."""
        return self.random.expovariate(1 / self._mean_seconds)


class Listener:
    """A listener, as ``create_server`` returns it."""

    def __init__(self, wires: Wires, address: Any) -> None:
        self._wires = wires
        self._address = address

    def close(self) -> None:
        self._wires.forget(self._address)


class End(asyncio.Transport):
    """One end of a connection."""

    peer: "End"

    def __init__(self, wires: Wires, process: Process) -> None:
        super().__init__()
        self.process = process
        self.protocol: asyncio.BufferedProtocol | None = None
        self.is_lost = False
        self._wires = wires
        self._sent = bytearray()  # under way to the peer
        self._inbox: deque[bytes | Exception | None] = deque()  # an error or None is the connection's end
        self._is_closing = self._is_paused = False
        self._most = 2**16

    def begin(self, protocol: asyncio.BufferedProtocol) -> None:
        """Give the end to its protocol."""
        self.protocol = protocol
        protocol.connection_made(self)
        self._take()

    def end_later(self, error: Exception | None) -> None:
        """Let the protocol know, some time, that the connection is over."""
        self._wires.loop.later(self._wires.delay(), self._deliver, error)

    # What protocols call.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing or self.is_lost or not data:
            return
        if not self._sent:
            self._wires.loop.later(self._wires.delay(), self._carry)
        self._sent += data
        if len(self._sent) > self._most and not self._is_paused:
            self._is_paused = True
            cast(asyncio.BufferedProtocol, self.protocol).pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._most = high or self._most

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not self._sent:
            self._end()

    def abort(self) -> None:
        self._is_closing = True
        self._sent.clear()
        self._end()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    # What the wire does.

    def _carry(self) -> None:
        """Deliver a part of what was sent."""
        if self.is_lost or not self._sent:
            return
        if not self._wires.is_cut(self.process, self.peer.process):
            size = len(self._sent)
            part = size if self._wires.random.random() < 0.7 else self._wires.random.randrange(1, size + 1)
            self.peer._deliver(bytes(self._sent[:part]))
            del self._sent[:part]
        if self._sent:
            self._wires.loop.later(self._wires.delay() + 0.001, self._carry)
            return
        if self._is_paused:
            self._is_paused = False
            self._wires.loop.call_soon(self._resume, context=self.process.context)
        if self._is_closing:
            self._end()

    def _resume(self) -> None:
        if not self.is_lost and not self._is_paused and self.protocol is not None:
            self.protocol.resume_writing()

    def _end(self) -> None:
        """Close this end now, and the other one when it hears of it."""
        if self.is_lost:
            return
        self.peer.end_later(None)
        self._deliver(None)

    def _deliver(self, content: bytes | Exception | None) -> None:
        self._inbox.append(content)
        self._wires.loop.call_soon(self._take, context=self.process.context)

    def _take(self) -> None:
        """Give the protocol all that has arrived."""
        if self.protocol is None:
            return
        while self._inbox and not self.is_lost:
            content = self._inbox.popleft()
            if not isinstance(content, bytes):
                self.is_lost = True
                if not self.peer.is_lost and not self._is_closing:
                    self.peer.end_later(None)
                self._is_closing = True
                self.protocol.connection_lost(content)
                return
            while self._inbox and isinstance(self._inbox[0], bytes) and self._wires.random.random() < 0.5:
                content += cast(bytes, self._inbox.popleft())
            while content and not self._is_closing:
                buffer = memoryview(self.protocol.get_buffer(-1))
                size = min(len(buffer), len(content))
                buffer[:size] = content[:size]
                self.protocol.buffer_updated(size)
                content = content[size:]
