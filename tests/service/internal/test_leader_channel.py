"""A connection to a server that says it leads: what it may send."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.service.internal.conftest import Play
from tests.service.internal.ends import BEAT, LEASE, RUN, WELCOME, Raw, false_leader, farewell, fronting, leading


def told(number: int | None, epoch: int = 1, **message: Any) -> dict[str, Any]:
    return {"epoch": epoch, "messages": [{"id": number, "body": 0, **message}]}


def beat_of(number: int, epoch: int = 1) -> dict[str, Any]:
    return told(number, epoch, beat={"wanted": True, "lease_seconds": None, "urgent": False})


def test_a_leader_of_an_older_epoch_is_not_believed(play: Play, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with fronting(path, waits=False) as front:
            async with leading(path, epoch=4):
                assert await front.ask(LEASE) == BEAT
            async with leading(path, epoch=3) as zombie:
                asked = asyncio.create_task(front.ask(LEASE))
                await asyncio.sleep(0.4)
                assert not front.connection.is_connected
                assert zombie.questions == []
                zombie.endpoint.epoch = None
                zombie.endpoint.lead(5)
                assert await asked == BEAT

    with caplog.at_level(logging.WARNING, "offbeat.service"):
        play(work())
    problems = [record.fields.get("problem") for record in caplog.records]
    assert problems.count("it speaks for epoch 3, and epoch 4 has begun") <= 2  # of several attempts, one line each end


@pytest.mark.parametrize(
    "answers",
    [
        [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
        [beat_of(2)],
        [WELCOME, WELCOME],
        [WELCOME, told(2, done={})],
        [WELCOME, told(2, welcome={"run": RUN}, done={})],
        [told(None, welcome={})],
        [WELCOME, beat_of(9)],
        [WELCOME, told(None, done={})],
        [WELCOME, beat_of(2, epoch=0)],
        [WELCOME, beat_of(2, epoch=2)],
        [WELCOME, {"epoch": 1, "messages": [{"id": 2, "body": 5, "done": {}}]}],
        [{"epoch": 0, "messages": [{"id": None, "body": 0, "farewell": farewell("follows")}]}],
    ],
    ids=lambda answers: str(answers[-1])[:60],
)
def test_a_false_leader_is_left_and_the_question_asked_elsewhere(
    play: Play, path: Path, answers: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def lie(end: Raw) -> None:
        await end.read()
        for answer in answers[:-1]:
            end.send(answer)
        if answers[:-1]:
            await end.read()
        if isinstance(answers[-1], bytes):
            end.writer.write(answers[-1])
        else:
            end.send(answers[-1])
        await end.rest()

    async def work() -> None:
        good = path.with_name("good")
        async with false_leader(path, lie), leading(good), fronting(path, good, waits=False) as front:
            assert await front.ask(LEASE) == BEAT

    with caplog.at_level(logging.WARNING, "offbeat.service"):
        play(work())
    problems = [record.fields["problem"] for record in caplog.records if record.msg == "no_leader"]
    assert problems
    assert not any("silent" in problem for problem in problems)  # it was left at once


def test_answers_given_twice_count_once(play: Play, path: Path) -> None:
    async def twice(end: Raw) -> None:
        await end.read()
        end.send(WELCOME)
        for number in (2, 3):
            assert (await end.read())["id"] == number
            end.send(beat_of(number))
            end.send(beat_of(2))
        await end.rest()

    async def work() -> None:
        async with false_leader(path, twice), fronting(path) as front:
            assert [(await front.ask(LEASE)).wanted for _ in range(2)] == [True, True]
            assert front.connection.is_connected

    play(work())
