"""The leader's end: who is accepted, what is answered, and what ends with a front."""

import asyncio
import json
import logging
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.messages import Beat
from pydantic import BaseModel

from offbeat.service.internal import front_endpoint as endpoints
from offbeat.service.internal.answers import Done, Forwarded
from offbeat.service.internal.front_endpoint import FrontEndpoint
from offbeat.service.internal.questions import LARGEST_FRONT_WEIGHT, CheckIn, Forward, GiveUp, Question
from offbeat.service.refusal import Refusal
from tests.service.internal.conftest import Play
from tests.service.internal.ends import (
    BEAT,
    FRONT,
    HELLO,
    LEASE,
    NO_WORK,
    RUN,
    TOKEN,
    beat,
    fronting,
    leading,
    raw,
    until,
)

LEASE_JSON = json.loads(LEASE.model_dump_json())
WAIT_JSON = json.loads(CheckIn(token=TOKEN, wait_seconds=9.0).model_dump_json())


class Gate:
    """A handler that waits until it is opened; it counts how many questions wait."""

    def __init__(self, answer: BaseModel = NO_WORK) -> None:
        self.event = asyncio.Event()
        self.waiting = self.cancelled = 0
        self._answer = answer

    async def __call__(self, question: Question[Any]) -> BaseModel:
        self.waiting += 1
        try:
            await self.event.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.waiting -= 1
        return self._answer


def test_fronts_of_other_versions_are_sent_away(play: Play, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    words = "speaks version 1, the front 2"

    async def work() -> None:
        async with leading(path) as leader, raw(path, hello=None) as end:
            end.ask(1, HELLO | {"protocol": 2})
            end.ask(2, LEASE_JSON)
            told = (await end.read())["farewell"]
            assert told["kind"] == "refused"
            assert words in told["reason"]
            assert await end.rest() == b""
            assert leader.questions == leader.gone == []

    with caplog.at_level(logging.INFO, "offbeat.service"):
        play(work())
    (line,) = [record.fields for record in caplog.records]
    assert words in line["problem"]


@pytest.mark.parametrize(
    "sent",
    [
        [(1, LEASE_JSON)],
        [(1, {"kind": "stop_waiting", "question": 3})],
        [(1, HELLO | {"front": "x" * 32})],
        [(1, HELLO | {"more": 1})],
        [(1, HELLO), (2, HELLO)],
        [(1, HELLO), (1, LEASE_JSON)],
        [(1, HELLO), (5, LEASE_JSON), (4, LEASE_JSON)],
        [(1, HELLO), (5, LEASE_JSON), (5, LEASE_JSON)],
        [(1, HELLO), (2, LEASE_JSON), (3, {"kind": "drop_tables"})],
    ],
    ids=["no hello", "no hello, stop", "bad id", "unknown key", "two", "used id", "older id", "repeated", "unknown"],
)
def test_what_no_front_sends_closes_the_connection(play: Play, path: Path, sent: list[tuple[int, Any]]) -> None:
    async def work() -> None:
        async with leading(path) as leader, raw(path, hello=None) as end:
            for number, content in sent:
                end.ask(number, content)
            await end.rest()
            await until(lambda: not leader.endpoint.channels)
            assert len(leader.gone) == (sent[0][1] == HELLO)
            assert not leader.endpoint.fronts
            good = [content for number, content in sent[1:-1] if content == LEASE_JSON]
            assert len(leader.questions) == len(good)

    play(work())


def test_a_replayed_frame_is_not_answered_again(play: Play, path: Path) -> None:
    async def work() -> None:
        async with leading(path) as leader, raw(path) as end:
            frame = end.ask(2, LEASE_JSON)
            await end.read()
            end.writer.write(frame)
            assert await end.rest() == b""
            assert len(leader.questions) == 1

    play(work())


def test_answers_come_in_any_order_with_the_epoch(play: Play, path: Path) -> None:
    async def later(question: Question[Any]) -> BaseModel:
        assert isinstance(question, GiveUp)
        await asyncio.sleep((5 - question.visit) * 0.02)
        return Done()

    async def work() -> None:
        async with leading(path, later, epoch=7), raw(path) as end:
            for visit in range(5):
                end.ask(10 + visit, {"kind": "give_up", "token": TOKEN, "visit": visit})
            answers = [await end.read() for _ in range(5)]
            assert [answer["id"] for answer in answers] == [14, 13, 12, 11, 10]
            assert {answer["epoch"] for answer in answers} == {7}
            assert all(answer["done"] == {} for answer in answers)

    play(work())


def test_refusals_and_failures_are_answers(play: Play, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def fails(question: Question[Any]) -> BaseModel:
        if isinstance(question, GiveUp):
            raise Refusal("no-such-visit", "check in", {"Retry-After": "3"})
        if isinstance(question, Forward):
            return Forwarded(status=200, headers=(), body=bytes(2**21 + 1))
        if isinstance(question, CheckIn):
            return BEAT  # of another question
        raise ZeroDivisionError("by a bug")

    async def work() -> None:
        async with leading(path, fails), fronting(path) as front:
            for question, kind, words in (
                (GiveUp(token=TOKEN, visit=1), "no-such-visit", "check in"),
                (Forward(method="GET", path="/", headers=(), peer=""), "too-large", "2097152"),
                (LEASE, "busy", "its log says why"),
                (CheckIn(token=TOKEN), "busy", "its log says why"),
            ):
                with pytest.raises(Refusal, match=words) as caught:
                    await front.ask(question)
                assert caught.value.kind == kind
            assert front.connection.is_connected

    with caplog.at_level(logging.ERROR, "offbeat.service"):
        play(work())
    failures = [record.fields for record in caplog.records]
    assert [line["question"] for line in failures] == ["RenewLease", "CheckIn"]
    assert "ZeroDivisionError: by a bug" in failures[0]["trace"]


def test_check_ins_end_when_nobody_waits_for_them(play: Play, path: Path) -> None:
    async def work() -> None:
        gate = Gate()
        async with leading(path, gate) as leader, raw(path) as end:
            for number in (2, 3, 4):
                end.ask(number, WAIT_JSON)
            end.ask(5, {"kind": "stop_waiting", "question": 3})
            await until(lambda: gate.waiting == 2)
            end.ask(6, {"kind": "stop_waiting", "question": 3})  # again, and one that is unknown
            end.ask(7, {"kind": "stop_waiting", "question": 99})
            gate.event.set()
            assert [(await end.read())["id"] for _ in range(2)] == [2, 4]
            (channel,) = leader.endpoint.channels
            assert (channel._tasks, channel._waiting, channel._weight) == (set(), {}, 0)

    play(work())


def test_a_check_in_that_waits_costs_no_task_until_its_turn(play: Play, path: Path) -> None:
    turns: list[asyncio.Future[None]] = []

    async def wait(question: Question[Any], has_waited: bool) -> BaseModel | asyncio.Future[None]:
        if has_waited:
            return NO_WORK
        turns.append(asyncio.get_running_loop().create_future())
        return turns[-1]

    async def work() -> None:
        async with leading(path) as leader:
            leader.endpoint.handler = wait
            async with raw(path) as end:
                for number in (2, 3, 4):
                    end.ask(number, WAIT_JSON)
                await until(lambda: len(turns) == 3)
                (channel,) = leader.endpoint.channels
                await until(lambda: not channel._tasks)
                end.ask(5, {"kind": "stop_waiting", "question": 3})
                await until(turns[1].cancelled)
                turns[0].set_result(None)
                answer = await end.read()
                assert (answer["id"], "check_in" in answer) == (2, True)
                assert (list(channel._waiting), channel._weight) == ([4], LEASE.least_weight)
            await until(turns[2].cancelled)
            await until(lambda: channel._weight == leader.endpoint.orphaned == 0)
            assert len(turns) == 3

    play(work())


def test_what_is_not_a_check_in_is_carried_out(play: Play, path: Path) -> None:
    async def work() -> None:
        gate = Gate(BEAT)
        async with leading(path, gate) as leader:
            async with raw(path) as end:
                end.ask(2, LEASE_JSON)
                end.ask(3, {"kind": "stop_waiting", "question": 2})
                end.ask(4, WAIT_JSON)
                await until(lambda: gate.waiting == 2)
            await until(lambda: leader.gone == [FRONT])
            await until(lambda: gate.waiting == 1)
            assert gate.cancelled == 1
            assert leader.endpoint.orphaned == LEASE.least_weight
            gate.event.set()
            await until(lambda: gate.waiting == 0)
            await until(lambda: leader.endpoint.orphaned == 0)

    play(work())


def test_a_front_that_comes_back_takes_the_place_of_its_old_connection(play: Play, path: Path) -> None:
    async def work() -> None:
        gate = Gate()
        async with leading(path, gate) as leader, raw(path) as old:
            old.ask(2, WAIT_JSON)
            await until(lambda: gate.waiting == 1)
            async with raw(path) as new:
                assert leader.gone == [FRONT]
                await until(lambda: gate.cancelled == 1)
                assert await old.rest() == b""
                gate.event.set()
                new.ask(2, WAIT_JSON)
                assert "check_in" in await new.read()
                assert list(leader.endpoint.fronts) == [FRONT]
            await until(lambda: leader.gone == [FRONT, FRONT])

    play(work())


def test_a_standby_sends_fronts_away_and_a_leader_that_was_replaced_too(play: Play, path: Path) -> None:
    async def work() -> None:
        gate = Gate()
        async with leading(path, gate, epoch=None) as leader:
            async with raw(path, hello=None) as end:
                end.ask(1, HELLO)
                assert (await end.read())["farewell"]["kind"] == "follows"
                assert await end.rest() == b""
            async with raw(path, hello=None) as end:
                await until(lambda: leader.endpoint.channels)
                leader.endpoint.lead(5)
                end.ask(1, HELLO)
                told = await end.read()
                assert (told["welcome"], told["epoch"]) == ({"run": RUN}, 5)
                end.ask(2, LEASE_JSON)
                await until(lambda: gate.waiting == 1)
                leader.endpoint.follow("another server leads")
                gate.event.set()  # the answer must not be sent any more
                told = await end.read()
                assert told["farewell"] == {"kind": "stopping", "reason": "another server leads"}
                assert await end.rest() == b""
            await until(lambda: leader.gone == [FRONT])

    play(work())


def test_a_front_that_does_not_count_its_questions_is_closed(play: Play, path: Path) -> None:
    async def work() -> None:
        gate = Gate(Forwarded(status=200, headers=()))
        request = {"kind": "forward", "method": "GET", "path": "/", "headers": [], "peer": ""}
        async with leading(path, gate) as leader, raw(path) as end:
            for number in range(64):
                end.ask(2 + number, request)
            await until(lambda: gate.waiting == 64)
            assert len(leader.endpoint.fronts) == 1
            end.ask(70, request)
            await end.rest()
            await until(lambda: leader.gone == [FRONT])
            assert gate.waiting == 64  # they are carried out; no other may come in the time
            assert leader.endpoint.orphaned > LARGEST_FRONT_WEIGHT
            async with raw(path, hello=None) as again:
                again.ask(1, HELLO)
                assert "lost connections" in (await again.read())["farewell"]["reason"]
            gate.event.set()
            await until(lambda: gate.waiting == 0)
            async with raw(path):
                assert leader.endpoint.orphaned == 0

    play(work())


def test_there_are_only_so_many_connections(play: Play, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "_MOST_FRONTS", 2)

    async def work() -> None:
        async with leading(path) as leader, raw(path), raw(path, hello=None), raw(path, hello=None) as third:
            assert "2 connections" in (await third.read())["farewell"]["reason"]
            assert await third.rest() == b""
            await until(lambda: len(leader.endpoint.channels) == 2)

    play(work())


def test_nobody_else_may_enter_the_sockets_folder(play: Play, path: Path) -> None:
    async def work() -> None:
        folder = path.parent / "new"
        async with leading(folder / "socket"):
            assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        for mode in (0o750, 0o701, 0o710):
            folder.chmod(mode)
            with pytest.raises(OffbeatError, match=rf"others may enter .*: chmod 700 {folder}$"):
                await FrontEndpoint(RUN, beat).listen(folder / "socket")
        assert not (folder / "socket").exists()

    play(work())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_the_sockets_folder_must_be_ones_own(play: Play, path: Path) -> None:
    async def work() -> None:
        os.chown(path.parent, 12345, -1)
        with pytest.raises(OffbeatError, match="others may enter"):
            await FrontEndpoint(RUN, beat).listen(path)

    play(work())


def test_a_socket_left_behind_is_no_obstacle_and_a_long_path_one_line(play: Play, path: Path) -> None:
    async def work() -> None:
        async with leading(path):
            os.link(path, path.with_name("left"))
        path.with_name("left").rename(path)
        async with leading(path), fronting(path) as front:
            assert isinstance(await front.ask(LEASE), Beat)
        with pytest.raises(OffbeatError, match=r"^cannot listen for fronts at .*xxx"):
            await FrontEndpoint(RUN, beat).listen(path.with_name("x" * 120))

    play(work())
