"""A front's end: it finds the leader, survives its loss, and refuses what it cannot get answered."""

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from offbeat_core.messages import Beat
from pydantic import BaseModel

from offbeat.service.internal.answers import Forwarded
from offbeat.service.internal.leader_channel import Unsent
from offbeat.service.internal.questions import LARGEST_FRONT_WEIGHT, CheckIn, Forward, Question, RenewLease
from offbeat.service.refusal import Refusal
from tests.service.internal.conftest import Play
from tests.service.internal.ends import (
    BEAT,
    LEASE,
    NO_WORK,
    RUN,
    TOKEN,
    WELCOME,
    Raw,
    beat,
    false_leader,
    fronting,
    leading,
    until,
)

REQUEST = Forward(method="GET", path="/", headers=(), peer="")


async def ask_all(front: Any, *questions: Question[Any]) -> list[Any]:
    return await asyncio.gather(*map(front.ask, questions), return_exceptions=True)


def test_each_question_gets_its_own_answer(play: Play, path: Path) -> None:
    async def answer(question: Question[Any]) -> BaseModel:
        assert isinstance(question, RenewLease)
        await asyncio.sleep(0.001 * (question.visit % 7))
        return Beat(wanted=True, lease_seconds=float(question.visit), urgent=False)

    async def work() -> None:
        async with leading(path, answer), fronting(path) as front, fronting(path) as other:
            questions = [RenewLease(token=TOKEN, visit=number) for number in range(500)]
            found = await asyncio.gather(ask_all(front, *questions), ask_all(other, *questions))
            assert [[beat.lease_seconds for beat in beats] for beats in found] == [list(range(500))] * 2

    play(work())


def test_questions_are_asked_again_after_a_break(play: Play, path: Path) -> None:
    """The leader is lost with questions before, during and after it has decided; another one takes its place."""

    async def work() -> None:
        decided = asyncio.Event()

        async def never(question: Question[Any]) -> BaseModel:
            decided.set()
            await asyncio.sleep(0.3)
            return NO_WORK  # too late

        async with fronting(path, waits=False) as front:
            async with leading(path, never):
                await until(lambda: front.connection.is_connected)
                questions = [LEASE, CheckIn(token=TOKEN, wait_seconds=9.0), REQUEST]
                change = REQUEST.model_copy(update={"method": "POST"})
                asked = asyncio.create_task(ask_all(front, *questions, change))
                await decided.wait()
            assert not front.connection.is_connected
            late = asyncio.create_task(front.ask(LEASE))

            async def answer(question: Question[Any]) -> BaseModel:
                if isinstance(question, Forward):
                    return Forwarded(status=200, headers=())
                return await beat(question)

            async with leading(path, answer, epoch=2) as leader:
                *answers, refused = await asked
                assert [type(answer) for answer in answers] == [question.answer for question in questions]
                assert isinstance(refused, Refusal)
                assert refused.kind == "busy"
                assert await late == BEAT
                assert front.connection.epoch == 2
                assert len(leader.questions) == 4
                assert front.epochs == [1, 2]

    play(work())


def test_a_check_in_waits_at_the_next_leader_for_the_rest_of_its_time(play: Play, path: Path) -> None:
    asked: list[float] = []

    async def wait(question: Question[Any]) -> BaseModel:
        assert isinstance(question, CheckIn)
        asked.append(question.wait_seconds)
        if len(asked) < 3:
            await asyncio.sleep(20)
        return NO_WORK

    async def work() -> None:
        async with fronting(path, waits=False) as front:
            long = asyncio.create_task(front.ask(CheckIn(token=TOKEN, wait_seconds=30.0)))
            short = asyncio.create_task(front.ask(CheckIn(token=TOKEN, wait_seconds=0.1)))
            async with leading(path, wait):
                await until(lambda: len(asked) == 2)
            await asyncio.sleep(0.1)
            async with leading(path, wait, epoch=2):
                assert [await long, await short] == [NO_WORK, NO_WORK]
        first, _, second, none = asked
        assert none == 0
        assert 25 < second < first - 0.05 < first <= 30

    play(work())


def test_a_front_goes_to_the_server_that_leads_and_stays_there(play: Play, path: Path) -> None:
    async def work() -> None:
        one, two = path.with_name("one"), path.with_name("two")
        async with (
            fronting(path.with_name("none"), one, two, waits=False) as front,
            leading(two, epoch=None) as standby,
        ):
            async with leading(one, epoch=1) as leader:
                await until(lambda: front.connection.is_connected)
                assert await front.ask(LEASE) == BEAT
                leader.endpoint.follow("another server leads")
                standby.endpoint.lead(2)
                began = time.monotonic()
                assert await front.ask(LEASE) == BEAT
                assert time.monotonic() - began < 2
                assert (len(leader.questions), len(standby.questions)) == (1, 1)
            async with leading(one, epoch=None):
                standby.endpoint.follow("another server leads")
                await until(lambda: not front.connection.is_connected)
                standby.endpoint.lead(3)
                assert await front.ask(LEASE) == BEAT
                assert front.connection.epoch == 3

    play(work())


def test_a_server_that_hangs_does_not_keep_a_front_from_the_leader_for_long(play: Play, path: Path) -> None:
    async def work() -> None:
        hung, two = path.with_name("hung"), path.with_name("two")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(hung))
            listener.listen()
            await find_again(hung, two)

    async def find_again(hung: Path, two: Path) -> None:
        async with leading(two) as leader, fronting(hung, two, waits=False) as front:
            await until(lambda: front.connection.is_connected)
            leader.endpoint.follow("another server leads")
            await until(lambda: not front.connection.is_connected)
            leader.endpoint.lead(2)
            began = time.monotonic()
            await until(lambda: front.connection.is_connected)
            assert time.monotonic() - began < 1.5

    play(work())


def test_a_leader_of_another_run_is_not_believed(play: Play, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        second = path.with_name("second")
        async with fronting(path, second, waits=False) as front:
            assert front.connection.run_id is None
            async with leading(path, epoch=None) as standby:
                await until(lambda: "front_lost" in [record.msg for record in caplog.records])
                assert not front.connection.found.is_set()
                standby.endpoint.lead(1)
                await front.connection.found.wait()
                assert front.connection.is_connected
                assert front.connection.run_id == RUN
            async with leading(path, epoch=2, run="f" * 16) as other:
                asked = asyncio.create_task(front.ask(LEASE))
                await until(lambda: other.gone)
                assert not front.connection.is_connected
                async with leading(second, epoch=2) as leader:
                    assert await asked == BEAT
                    assert len(leader.questions) == 1
                assert other.questions == []
                assert (front.connection.run_id, front.epochs) == (RUN, [1, 2])

    with caplog.at_level(logging.DEBUG, "offbeat.service"):
        play(work())
    problems = [record.fields["problem"] for record in caplog.records if record.msg == "no_leader"]
    assert "it leads another run: start this front again" in problems


def test_without_a_leader_questions_wait_a_little_and_are_then_refused(play: Play, path: Path, quick: None) -> None:
    async def work() -> None:
        async with fronting(path, waits=False) as front:
            first, other = asyncio.create_task(front.ask(LEASE)), asyncio.create_task(front.ask(LEASE))
            await asyncio.sleep(0.1)  # 5 s
            other.cancel()
            began = time.monotonic()
            with pytest.raises(Unsent, match="cannot be reached") as caught:
                await front.ask(LEASE)
            assert time.monotonic() - began < 0.05
            assert (caught.value.kind, caught.value.headers) == ("busy", {"Retry-After": "2"})
            assert not first.done()
            with pytest.raises(Unsent, match="does not answer"):
                await first
            assert front.connection._weight == 0
            assert 0.3 < time.monotonic() - began + 0.1 < 2
            async with leading(path):
                await until(lambda: front.connection.is_connected)
                assert await front.ask(LEASE) == BEAT

    play(work())


def test_a_leader_that_does_not_answer_in_time(play: Play, path: Path, quick: None) -> None:
    async def slow(question: Question[Any]) -> BaseModel:
        await asyncio.sleep(0.9)
        return await beat(question)

    async def work() -> None:
        async with leading(path, slow) as leader, fronting(path) as front:
            began = time.monotonic()
            wait = CheckIn(token=TOKEN, wait_seconds=1.0)
            found, checked_in = await ask_all(front, LEASE, wait)
            assert type(found) is Refusal
            assert found.kind == "busy"
            assert checked_in == NO_WORK  # it may wait for longer
            assert time.monotonic() - began < 2
            assert await front.ask(wait) == NO_WORK  # the late answer to the first harms nothing
            assert leader.gone == []

    play(work())


def test_a_question_that_kills_each_leader_is_given_up(play: Play, path: Path) -> None:
    async def die(end: Raw) -> None:
        await end.read()
        end.send(WELCOME)
        seen.append((await end.read())["content"])

    seen: list[Any] = []

    async def work() -> None:
        async with false_leader(path, die), fronting(path) as front:
            with pytest.raises(Refusal, match="lost before it answered") as caught:
                await front.ask(LEASE)
            assert caught.type is Refusal
            assert len(seen) == 3

    play(work())


def test_a_check_in_that_is_cancelled_ends_at_the_leader(play: Play, path: Path) -> None:
    stopped: list[type] = []

    async def wait(question: Question[Any]) -> BaseModel:
        try:
            await asyncio.sleep(0.2 if isinstance(question, RenewLease) else 20)
        except asyncio.CancelledError:
            stopped.append(type(question))
            raise
        return BEAT

    async def work() -> None:
        async with leading(path, wait) as leader, fronting(path) as front:
            asked = [asyncio.create_task(front.ask(q)) for q in (CheckIn(token=TOKEN, wait_seconds=9.0), LEASE)]
            await until(lambda: len(leader.questions) == 2)
            for task in asked:
                task.cancel()
            await until(lambda: stopped == [CheckIn])
            assert await front.ask(LEASE) == BEAT  # after the answer to the other, which nobody takes
            assert front.connection._weight == 0
            assert leader.endpoint.orphaned == 0
            assert stopped == [CheckIn]

    play(work())


def test_too_many_questions_are_refused_here(play: Play, path: Path) -> None:
    gate = []

    async def hold(question: Question[Any]) -> BaseModel:
        await gate[0].wait()
        return Forwarded(status=200, headers=()) if isinstance(question, Forward) else await beat(question)

    async def work() -> None:
        gate.append(asyncio.Event())
        async with leading(path, hold) as leader, fronting(path) as front:
            requests = [asyncio.create_task(front.ask(REQUEST)) for _ in range(16)]
            await asyncio.sleep(0)
            with pytest.raises(Unsent, match="too many requests") as caught:
                await front.ask(REQUEST)
            assert caught.value.kind == "busy"
            room = LARGEST_FRONT_WEIGHT // 2 // LEASE.least_weight
            leases = [asyncio.create_task(front.ask(LEASE)) for _ in range(room)]
            await asyncio.sleep(0)
            with pytest.raises(Refusal, match="too many requests"):
                await front.ask(LEASE)
            await until(lambda: len(leader.questions) == 16 + room, 20)
            gate[0].set()
            await asyncio.gather(*requests, *leases)
            assert front.connection._weight == 0
            assert await front.ask(LEASE) == BEAT

    play(work())


def test_a_question_that_is_too_large_harms_no_other(play: Play, path: Path) -> None:
    async def work() -> None:
        async with leading(path), fronting(path) as front:
            large = REQUEST.model_copy(update={"body": bytes(2**20 + 1)})
            first, refused, second = await ask_all(front, LEASE, large, LEASE)
            assert (first, second) == (BEAT, BEAT)
            assert isinstance(refused, Refusal)
            assert refused.kind == "too-large"
            assert front.connection._weight == 0

    play(work())


@pytest.mark.parametrize("is_led", [False, True])
def test_questions_are_refused_when_the_front_stops(play: Play, path: Path, is_led: bool) -> None:
    async def never(question: Question[Any]) -> BaseModel:
        await asyncio.sleep(0.5)
        return BEAT

    async def ask(stop: Callable[[], Awaitable[None]] | None = None) -> None:
        async with fronting(path, waits=is_led) as front:
            asked = asyncio.create_task(front.ask(LEASE))
            await asyncio.sleep(0.05)
        with pytest.raises(Refusal, match="being stopped") as caught:
            await asked
        assert (caught.type is Unsent) is not is_led
        with pytest.raises(Refusal, match="cannot be reached"):
            await front.ask(LEASE)

    async def work() -> None:
        if not is_led:
            await ask()
            return
        async with leading(path, never) as leader:
            await ask()
            await until(lambda: len(leader.gone) == 1)

    play(work())


def test_nobody_is_flooded_with_lines_while_there_is_no_leader(
    play: Play, path: Path, quick: None, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        async with leading(path, epoch=None), fronting(path, Path(f"{path}-none"), waits=False):
            await asyncio.sleep(0.4)  # a dozen attempts

    with caplog.at_level(logging.INFO, "offbeat.service"):
        play(work())
    assert [record.fields["address"] for record in caplog.records] == [str(path), str(path) + "-none"]


@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGSTOP])
def test_a_leaders_process_is_lost(play: Play, path: Path, kill: signal.Signals) -> None:
    """The question that it has not answered gets its answer from the next leader, and its own comes too late."""

    async def stuck(question: Question[Any]) -> BaseModel:
        await asyncio.sleep(60)
        return BEAT

    async def lead() -> None:
        async with leading(path, stuck):
            await asyncio.sleep(60)

    process = multiprocessing.get_context("fork").Process(target=lambda: asyncio.run(lead()), daemon=True)
    process.start()

    async def work() -> None:
        assert process.pid is not None
        second = path.with_name("second")
        async with fronting(path, second) as front, leading(second, epoch=None) as standby:
            asked = asyncio.create_task(front.ask(LEASE))
            await asyncio.sleep(0.1)
            os.kill(process.pid, kill)
            standby.endpoint.lead(2)
            began = time.monotonic()
            assert await asked == BEAT
            assert time.monotonic() - began < 10
            os.kill(process.pid, signal.SIGCONT)
            assert await front.ask(LEASE) == BEAT
            assert front.connection.epoch == 2

    try:
        play(work())
    finally:
        process.kill()
        process.join()
