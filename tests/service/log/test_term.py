import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest

from offbeat.service.log.log import EPOCH, BrokenLogError, LogUnavailableError, ReplacedError, Row, UnknownOutcomeError
from offbeat.service.log.term import Term
from tests.service.log.faulty_log import FaultyConnection, MemoryLog
from tests.service.log.virtual_loop import run_virtually


@dataclass
class Acknowledged:
    """What processes have told others, in order."""

    values: list[str] = field(default_factory=list)


class Process:
    """Follows the log, leads it when nobody seems to, and appends a value at a time, which it then acknowledges."""

    def __init__(self, name: str, connection: FaultyConnection, random: Random, acknowledged: Acknowledged) -> None:
        self.connection = connection
        self.read: list[Row] = []
        self._name = name
        self._random = random
        self._acknowledged = acknowledged

    async def work(self) -> None:
        term = Term(self.connection, self._name)
        value = 0
        while True:
            try:
                async for row in term.follow():
                    self.read.append(row)
                await asyncio.sleep(self._random.expovariate(0.1))
                if not await term.lead():
                    continue
                while True:
                    value += 1
                    names = [f"{self._name}-{value}-{i}" for i in range(self._random.randint(1, 3))]
                    await self._append(term, names)
            except (LogUnavailableError, ReplacedError):
                term = Term(self.connection, f"{self._name}*{len(self.read)}.{value}", term.number, term.epoch)

    async def _append(self, term: Term, names: list[str]) -> None:
        while True:
            try:
                await term.append([Row(0, 0, name, "") for name in names])
            except (LogUnavailableError, UnknownOutcomeError):
                continue
            self._acknowledged.values.extend(names)
            return


class Hasty(Process):
    """Acknowledges before the rows are durable."""

    async def _append(self, term: Term, names: list[str]) -> None:
        self._acknowledged.values.extend(names)
        await term.append([Row(0, 0, name, "") for name in names])


class Guesses(Process):
    """Takes an unknown outcome for a success."""

    async def _append(self, term: Term, names: list[str]) -> None:
        with suppress(UnknownOutcomeError):
            await term.append([Row(0, 0, name, "") for name in names])
        term._unsettled = []
        self._acknowledged.values.extend(names)


async def history(seed: int, kind: type[Process], log: MemoryLog) -> tuple[list[str], list[Process]]:
    random = Random(seed)
    acknowledged = Acknowledged()
    processes = [kind(f"p{i}", FaultyConnection(log, random), random, acknowledged) for i in range(3)]
    tasks = [asyncio.create_task(process.work()) for process in processes]
    for _ in range(4):
        await asyncio.sleep(random.expovariate(0.05))
        stopped = random.choice(processes)
        stopped.connection.runs.clear()
        await asyncio.sleep(random.expovariate(0.05))
        stopped.connection.runs.set()
    for task in tasks:
        task.cancel()
    for process in processes:
        await process.connection.end()
    return acknowledged.values, processes


def problem(seed: int, kind: type[Process] = Process, *, has_fence: bool = True) -> str | None:
    """Return which promise a history breaks, None if it keeps all."""
    log = MemoryLog(has_fence=has_fence)
    try:
        acknowledged, processes = run_virtually(history(seed, kind, log), Random(seed))
    except (AssertionError, BrokenLogError) as error:
        return str(error)
    rows = log.rows
    if [row.number for row in rows] != list(range(1, len(rows) + 1)):
        return "gaps"
    values = [row.name for row in rows if row.name != EPOCH]
    if len(set(values)) < len(values):
        return "twice"
    if not set(acknowledged) <= set(values):
        return "acknowledged, but not in the log"
    epochs = [row.epoch for row in rows]
    if epochs != sorted(epochs):
        return "a row of an old epoch behind one of a new epoch"
    holders = [row.arguments for row in rows if row.name == EPOCH]
    if [row.epoch for row in rows if row.name == EPOCH] != list(range(1, len(holders) + 1)):
        return "epochs"
    if any(process.read != rows[: len(process.read)] and set(process.read) - set(rows) for process in processes):
        return "somebody has read a row that is not there"
    return None


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_nothing_acknowledged_is_lost_and_no_old_leader_writes(first: int) -> None:
    assert {seed: found for seed in range(first, first + 50) if (found := problem(seed))} == {}


def test_most_histories_change_leaders_and_acknowledge_values() -> None:
    changes = 0
    for seed in range(20):
        log = MemoryLog()
        acknowledged, _ = run_virtually(history(seed, Process, log), Random(seed))
        changes += sum(row.name == EPOCH for row in log.rows) > 1 and len(acknowledged) > 5
    assert changes > 10


@pytest.mark.parametrize(("kind", "has_fence"), [(Hasty, True), (Guesses, True), (Process, False)])
def test_faults_are_seen(kind: type[Process], has_fence: bool) -> None:
    assert any(problem(seed, kind, has_fence=has_fence) for seed in range(50))
