"""The simulated log does what the real one does."""

import asyncio
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa

from offbeat.service.log.log import COORDINATOR, RUN, TERM, ReplacedError, Row
from offbeat.service.log.sql_log import SqlLog
from offbeat.service.log.tables import is_rare
from offbeat.service.log.tables import log as table
from tests.cluster.link import Faults, Link
from tests.cluster.shared_log import LogConnection, SharedLog
from tests.cluster.virtual_loop import run_virtually


async def answers(log: Any, random: Random) -> list[Any]:
    """Return what a log answers to a series of calls, some of which it has to refuse."""
    found: list[Any] = []
    for _ in range(60):
        rows = await log.read(0, 1000)
        number, epoch = (rows[-1].number, rows[-1].epoch) if rows else (0, 0)
        match random.randrange(6):
            case 0 | 1:
                after = (max(number - random.choice((0, 0, 0, 1)), 0), epoch + random.choice((0, 0, 0, 1)))
                after = after if after[0] else (0, 0)
                owner, body = random.choice((COORDINATOR, TERM, RUN)), random.choice((None, b"x"))
                new = [Row(after[0] + i, epoch + 1, owner, "name", body=body) for i in range(1, random.randrange(2, 4))]
                try:
                    found.append(await log.append(new, after=after))
                except ReplacedError:
                    found.append("replaced")
            case 2:
                found.append(await log.read(random.randrange(10), random.randrange(1, 5)))
            case 3:
                await log.forget_bodies(random.randrange(10))
            case 4:
                try:
                    await log.beat(random.randrange(4), "a")
                except ReplacedError:
                    found.append("beaten")
                found.append((await log.leader(), log.leader_now(), await log.last_epoch()))
            case _:
                found.append(log.read_now(random.choice((is_rare, ~is_rare)), 3))
                found.append(log.read_now(is_rare & (table.c.owner == TERM) & (table.c.epoch == 2)))
                found.append(log.newest_now(RUN))
    return [*found, await log.read(0, 1000)]


@pytest.mark.parametrize("seed", range(8))
def test_both_answer_the_same(seed: int, tmp_path: Path) -> None:
    real = SqlLog(sa.create_engine(f"sqlite:///{tmp_path / 'log.sqlite'}"))
    try:
        expected = asyncio.run(answers(real, Random(seed)))
    finally:
        real.close()
    perfect = Link(Random(0), Faults(0.0, 0.0, 0.0))
    simulated = LogConnection(SharedLog(real.run), perfect, "one")
    assert run_virtually(answers(simulated, Random(seed)), Random(0)) == expected
