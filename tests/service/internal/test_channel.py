"""Frames over real sockets: whole, in pieces, too large, none at all."""

import asyncio
import json
import logging
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from offbeat.service.internal import channel as channels
from offbeat.service.internal.answers import Forwarded
from offbeat.service.internal.batches import told
from offbeat.service.internal.channel import Channel
from offbeat.service.internal.questions import Forward, Question, RenewLease
from tests.service.internal.conftest import Play
from tests.service.internal.ends import HELLO, LEASE, WELCOME, Raw, false_leader, fronting, leading, raw, until

LEASE_JSON = json.loads(LEASE.model_dump_json())
LEASE_BATCH = json.dumps({"messages": [{"id": 2, "body": 0, "content": LEASE_JSON}]}).encode()
LEASE_FRAME = struct.pack(">II", len(LEASE_BATCH), len(LEASE_BATCH)) + LEASE_BATCH
REQUEST = Forward(method="GET", path="/", headers=(), peer="")
REQUEST_JSON = json.loads(REQUEST.model_dump_json())


async def echo(question: Question[Any]) -> BaseModel:
    assert isinstance(question, Forward)
    return Forwarded(status=200, headers=(), body=question.body)


def test_frames_may_come_in_any_pieces(play: Play, path: Path) -> None:
    async def work() -> None:
        async with leading(path, echo), raw(path) as end:
            body = bytes(range(256)) * 2
            frame = end.ask(2, REQUEST_JSON, body) + end.ask(3, REQUEST_JSON, body[::-1])
            assert [(await end.read())["bytes"] for _ in range(2)] == [body, body[::-1]]
            for number in (4, 6):
                again = frame.replace(b'"id": 2', b'"id": %d' % number).replace(b'"id": 3', b'"id": %d' % (number + 1))
                step = 1 if number == 4 else 397
                for begin in range(0, len(again), step):
                    end.writer.write(again[begin : begin + step])
                    await asyncio.sleep(0)
                assert [(await end.read())["bytes"] for _ in range(2)] == [body, body[::-1]]

    play(work())


def test_small_and_large_frames_follow_each_other(play: Play, path: Path) -> None:
    sizes = [0, 1, 2**20, 5, 2**19 - 200, 2**19, 3, 2**20 - 1, 0, 700_000]

    async def work() -> None:
        async with leading(path, echo) as leader, fronting(path) as front:
            for _ in range(2):
                bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
                asked = [REQUEST.model_copy(update={"body": body}) for body in bodies]
                answers = await asyncio.gather(*map(front.ask, asked))
                assert [answer.body for answer in answers] == bodies
            (one,) = leader.endpoint.channels
            assert len(one._buffer) <= 2**19 + 8  # the longer ones are not kept

    play(work())


def test_what_waits_goes_in_one_frame(play: Play, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frames: list[tuple[type, int]] = []
    write = Channel._write

    def counted(self: Channel, messages: list[bytes], *rest: Any) -> None:
        frames.append((type(self), len(messages)))
        write(self, messages, *rest)

    monkeypatch.setattr(Channel, "_write", counted)

    async def work() -> None:
        async with leading(path) as leader, fronting(path) as front:
            frames.clear()
            await asyncio.gather(*(front.ask(LEASE) for _ in range(300)))
            assert len(leader.questions) == 300
            assert sorted(number for _, number in frames) == [300, 300]
            frames.clear()
            await asyncio.gather(*(front.ask(LEASE) for _ in range(2000)))
            assert max(number for _, number in frames) == 1024
            assert sum(number for _, number in frames) == 4000

    play(work())


def test_frames_are_at_most_so_large(play: Play, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    write = Channel._write

    def measured(self: Channel, messages: list[bytes], bodies: list[bytes], size: int) -> None:
        sizes.append(sum(map(len, messages)) + size)
        write(self, messages, bodies, size)

    monkeypatch.setattr(Channel, "_write", measured)

    async def work() -> None:
        async with leading(path, echo), fronting(path) as front:
            body = bytes(2**16)
            await asyncio.gather(*(front.ask(REQUEST.model_copy(update={"body": body})) for _ in range(15)))
            assert 2**17 < max(sizes) < 2**18 + 2**17

    play(work())


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: leader\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        struct.pack(">II", 2**22 + 1, 10),
        struct.pack(">II", 2**32 - 1, 0),
        struct.pack(">II", 5, len(LEASE_BATCH)) + LEASE_BATCH,
        struct.pack(">II", 0, 0),
    ],
    ids=["HTTP", "TLS", "too large", "far too large", "JSON beyond the frame", "empty"],
)
@pytest.mark.parametrize("is_greeted", [False, True])
def test_garbage_closes_the_connection_at_once(
    play: Play, path: Path, sent: bytes, is_greeted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with leading(path) as leader, raw(path, hello=HELLO if is_greeted else None) as end:
            end.writer.write(sent)
            assert await end.rest() == b""
            await until(lambda: not leader.endpoint.channels)
            assert leader.questions == []
            assert len(leader.gone) == is_greeted

    with caplog.at_level(logging.WARNING, "offbeat.service"):
        play(work())
    assert len([record for record in caplog.records if record.getMessage() == "front_lost"]) == 1


def test_before_the_hello_only_short_frames_are_read(play: Play, path: Path) -> None:
    async def work() -> None:
        async with leading(path) as leader, raw(path, hello=None) as end:
            end.writer.write(struct.pack(">II", 4097, 4097) + b" " * 4000)
            assert await end.rest() == b""
            await until(lambda: not leader.endpoint.channels)

    play(work())


def test_a_front_that_never_says_who_it_is_is_closed(play: Play, path: Path, quick: None) -> None:
    async def work() -> None:
        async with leading(path) as leader, raw(path, hello=None) as end:
            frame = struct.pack(">II", 500, 500)
            began = time.monotonic()
            while leader.endpoint.channels or time.monotonic() - began < 0.05:
                end.writer.write(frame[:1])  # it is not silent
                frame = frame[1:] or b" "
                await asyncio.sleep(0.01)
            assert 0.08 < time.monotonic() - began < 5

    play(work())


@pytest.mark.parametrize("side", ["front", "leader"])
def test_a_silent_end_counts_as_lost(play: Play, path: Path, quick: None, side: str) -> None:
    async def work() -> None:
        if side == "front":
            async with leading(path) as leader, raw(path) as end:
                assert await end.rest()  # keep-alive frames, until the connection is closed
                await until(lambda: len(leader.gone) == 1)
        else:
            connections = 0

            async def accept(end: Raw) -> None:
                nonlocal connections
                connections += 1
                await end.read()
                end.send(WELCOME)
                await end.rest()

            async with false_leader(path, accept), fronting(path) as front:
                await until(lambda: connections == 3)
                assert len(front.epochs) >= 2

    play(work())


def test_idle_connections_stay_open(play: Play, path: Path, quick: None) -> None:
    async def work() -> None:
        async with leading(path) as leader, fronting(path) as front:
            await asyncio.sleep(0.5)  # 25 ticks
            assert await front.ask(LEASE)
            assert front.connection.is_connected
            assert leader.gone == []
            assert front.epochs == [1]

    play(work())


def test_an_end_that_was_stopped_itself_reads_before_it_judges(play: Play, path: Path, quick: None) -> None:
    async def work() -> None:
        async with leading(path) as leader, fronting(path) as front:
            for _ in range(3):
                time.sleep(0.3)  # the whole loop, 15 ticks
                await asyncio.sleep(0.01)
            assert await front.ask(LEASE)
            assert leader.gone == []

    play(work())


def test_an_end_that_does_not_read_is_closed(play: Play, path: Path, quick: None) -> None:
    async def big(question: Question[Any]) -> BaseModel:
        return Forwarded(status=200, headers=(), body=bytes(2**21))

    async def work() -> None:
        async with leading(path, big) as leader, raw(path) as end:
            for number in range(2, 12):
                end.ask(number, REQUEST_JSON)
            end.writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue]
            began = time.monotonic()
            while not leader.gone:
                end.send({"messages": []})  # it is not silent
                await asyncio.sleep(0.02)
            assert 0.15 < time.monotonic() - began < 5
            await until(lambda: not leader.endpoint.channels)

    play(work())


def test_a_slow_end_gets_everything_once_it_reads(play: Play, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "_SLOW_TICKS", 1000)

    async def work() -> None:
        async with leading(path, echo), raw(path) as end:
            end.writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue]
            bodies = [bytes([number]) * 2**20 for number in range(12)]
            for number, body in enumerate(bodies, 2):
                end.ask(number, REQUEST_JSON, body)
                await end.writer.drain()
            await asyncio.sleep(0.1)
            end.writer.transport.resume_reading()  # pyright: ignore[reportAttributeAccessIssue]
            answers = [await end.read() for _ in bodies]
            assert [answer["bytes"] for answer in sorted(answers, key=lambda answer: answer["id"])] == bodies

    play(work())


def test_what_waits_for_a_slow_end_is_collected(play: Play, path: Path) -> None:
    async def work() -> None:
        async with leading(path) as leader, raw(path) as end:
            end.writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue]
            (channel,) = leader.endpoint.channels
            message = told(None, Forwarded(status=200, headers=(("x", "y" * 2**13),) * 8))
            for _ in range(100):
                channel.send(*message)
                await asyncio.sleep(0)
            end.writer.transport.resume_reading()  # pyright: ignore[reportAttributeAccessIssue]
            for _ in range(100):
                await end.read()
            assert 20 < end.frames < 60

    play(work())


@pytest.mark.parametrize("cut", [0, 3, 8, 50])
def test_a_connection_that_ends_within_a_frame_leaves_nothing(play: Play, path: Path, cut: int) -> None:
    async def work() -> None:
        async with leading(path) as leader:
            async with raw(path) as end:
                end.writer.write(LEASE_FRAME[:cut])
                await end.writer.drain()
            await until(lambda: leader.gone and not leader.endpoint.channels)
            assert leader.questions == []

    play(work())


def test_random_bytes_never_reach_the_handler(play: Play, path: Path) -> None:
    import random

    rng = random.Random(3)

    def mutated() -> bytes:
        frame = bytearray(LEASE_FRAME)
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        return bytes(frame)

    async def work() -> None:
        async with leading(path) as leader:
            for _ in range(60):
                async with raw(path) as end:
                    end.writer.write(mutated() if rng.random() < 0.8 else rng.randbytes(rng.randint(1, 5000)))
                    end.writer.write_eof()
                    await end.rest()
            await until(lambda: not leader.endpoint.channels)
            # A digit of the visit or the token may have become another.
            assert all(isinstance(question, RenewLease) for question in leader.questions)
            assert len(leader.questions) < 20

    play(work())
