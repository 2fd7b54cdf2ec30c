"""Requests and answers on one TCP connection."""

import asyncio
from collections.abc import Awaitable
from contextlib import closing, suppress
from typing import TypeVar

from tests.e2e.http_message import Answer, Request

T = TypeVar("T")

READ_LIMIT = 1 << 20
_PIECE = 1 << 16
_PIECE_SECONDS = 0.003  # so that it takes a while to upload a large body


async def exchange(port: int, request: Request) -> Answer:
    """Return the server's answer, as far as it comes.

    Raises:
        OSError: There is no server.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=READ_LIMIT)
    answer = Answer(b"")
    with closing(writer), suppress(OSError):
        with suppress(ConnectionError):  # the server may have answered before the connection broke
            await _write(writer, request.whole())
        while not answer.is_whole and (data := await reader.read(READ_LIMIT)):
            answer = Answer(answer.data + data)
    return answer


async def send_beginning(port: int, beginning: bytes) -> None:
    """Let the server have the beginning of a request, and wait until it knows that no more will come."""
    with suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with closing(writer):
            await _write(writer, beginning)
            writer.write_eof()
            await reader.read()


async def unless_gone(work: Awaitable[T], line: asyncio.StreamReader | None) -> T:
    """Return what comes of some work.

    Raises:
        ConnectionError: The client has hung up; the work is given up.
    """
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(line.read(1) if line else asyncio.Future[bytes]())
    try:
        await asyncio.wait([working, gone], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ConnectionResetError
        return working.result()
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def until_gone(line: asyncio.StreamReader) -> None:
    """Wait until the client has hung up."""
    with suppress(ConnectionError):
        await line.read()


async def _write(writer: asyncio.StreamWriter, data: bytes) -> None:
    for begin in range(0, len(data), _PIECE):
        if begin:
            await asyncio.sleep(_PIECE_SECONDS)
        writer.write(data[begin : begin + _PIECE])
        await writer.drain()
