import asyncio
from random import Random
from typing import Any, cast

import pytest

from tests.cluster.virtual_loop import Process, VirtualLoop, run_virtually
from tests.cluster.wires import End, Wires


class Reader(asyncio.BufferedProtocol):
    """A protocol with a small buffer."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.pieces = 0
        self.ends: list[Exception | None] = []
        self._buffer = bytearray(100)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(End, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.pieces += 1
        self.content += self._buffer[:nbytes]

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends.append(exc)


class Pair:
    """A connection between two processes."""

    def __init__(self) -> None:
        self.server, self.client = Process("server"), Process("client")
        self.accepted: list[Reader] = []
        self.wires = Wires(cast(VirtualLoop, asyncio.get_running_loop()), Random(1))

    def accept(self) -> Reader:
        self.accepted.append(Reader())
        return self.accepted[-1]

    async def connect(self) -> Any:
        async def listen() -> None:
            self.wires.listen("here", self.accept)

        await self.server.start(listen())
        return (await self.client.start(self.wires.connect("here", Reader)))[1]


def test_bytes_arrive_in_order_and_in_other_pieces() -> None:
    async def main() -> None:
        pair = Pair()
        near = await pair.connect()
        for i in range(50):
            near.transport.write(bytes([i]) * 10)
            await asyncio.sleep(0.001)
        near.transport.close()
        await asyncio.sleep(1)
        (far,) = pair.accepted
        assert far.content == b"".join(bytes([i]) * 10 for i in range(50))
        assert 5 < far.pieces != 50
        assert far.ends == [None]
        assert near.ends == [None]

    run_virtually(main(), Random(1))


def test_a_stopped_process_reads_later_and_a_killed_one_is_noticed() -> None:
    async def main() -> None:
        pair = Pair()
        near = await pair.connect()
        await asyncio.sleep(1)
        (far,) = pair.accepted
        pair.server.stop()
        near.transport.write(b"x" * 500)
        await asyncio.sleep(1)
        assert far.content == b""
        pair.server.go_on()
        await asyncio.sleep(1)
        assert len(far.content) == 500
        pair.server.kill()
        pair.wires.lose(pair.server)
        await asyncio.sleep(1)
        assert len(near.ends) == 1
        assert isinstance(near.ends[0], ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await pair.client.start(pair.wires.connect("here", Reader))

    run_virtually(main(), Random(1))


def test_a_cut_holds_back_what_is_sent() -> None:
    async def main() -> None:
        pair = Pair()
        near = await pair.connect()
        pair.wires.cut.add("server")
        near.transport.write(b"x")
        await asyncio.sleep(10)
        assert pair.accepted[0].content == b""
        pair.wires.cut.clear()
        await asyncio.sleep(1)
        assert pair.accepted[0].content == b"x"

    run_virtually(main(), Random(1))
