import asyncio
from contextlib import suppress
from random import Random

import pytest

from offbeat.service.log.log import TERM, BrokenLogError, Change, LogUnavailableError, Row, UnknownOutcomeError
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.log.term import Term
from offbeat.service.refusal import Refusal
from tests.cluster.link import Faults, Link
from tests.cluster.shared_log import LogConnection, SharedLog
from tests.cluster.virtual_loop import Process, run_virtually
from tests.effort import cases

FAULTS = Faults(not_sent=0.2, broken=0.2, lost_answer=0.2, mean_seconds=1.0, slow=0.0, late_seconds=5.0)
NO_FAULTS = Faults(not_sent=0.0, broken=0.0, lost_answer=0.0, mean_seconds=1.0)


class Disk:
    """A disk that is never full."""

    problem = None


class Server:
    """A server that follows the log, leads it when nobody seems to, and acknowledges what its clients hand in."""

    def __init__(self, name: str, log: SharedLog, random: Random, acknowledged: list[str]) -> None:
        self.process = Process(name)
        self._connection = LogConnection(log, Link(random, FAULTS), name)
        self.read: list[Row] = []
        self._name = name
        self._random = random
        self._acknowledged = acknowledged
        self._terms = 0

    async def work(self) -> None:
        number = epoch = 0
        while True:
            self._terms += 1
            term = Term(self._connection, f"{self._name}.{self._terms}", number, epoch)
            with suppress(LogUnavailableError, UnknownOutcomeError):
                async for row in term.follow():
                    self.read.append(row)
                await asyncio.sleep(self._random.expovariate(0.1))
                if await term.lead():
                    await self._lead(term)
            number, epoch = (self.read[-1].number, self.read[-1].epoch) if self.read else (0, 0)

    async def _lead(self, term: Term) -> None:
        replaced = asyncio.Event()
        log_writer = LogWriter(term, Disk(), lambda _: replaced.set())
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._client(i, log_writer)) for i in range(3)]
            try:
                await replaced.wait()
            finally:
                for task in tasks:
                    task.cancel()
                log_writer._task.cancel()

    async def _client(self, client: int, log_writer: LogWriter) -> None:
        for number in range(1000):
            await asyncio.sleep(self._random.expovariate(0.5))
            name = f"{self._name}.{self._terms}-{client}-{number}"
            log_writer.enter(Change("coordinator", name, {}))
            with suppress(Refusal):
                await self._answer(log_writer, name)

    async def _answer(self, log_writer: LogWriter, name: str) -> None:
        await log_writer.wait_until_durable()
        self._acknowledged.append(name)


class Hasty(Server):
    """Acknowledges before the rows are durable."""

    async def _answer(self, log_writer: LogWriter, name: str) -> None:
        self._acknowledged.append(name)


class Guesses(Server):
    """Takes an unknown outcome for a success."""

    async def _lead(self, term: Term) -> None:
        append = term.append

        async def guess(rows: list[Row]) -> None:
            try:
                await append(rows)
            except UnknownOutcomeError:
                term._unsettled = []
                term.number += len(rows)

        term.append = guess
        await super()._lead(term)


class Unfenced(SharedLog):
    """A log that takes rows behind any row."""

    def check_end(self, after: tuple[int, int]) -> None:
        pass


async def history(seed: int, kind: type[Server], log: SharedLog) -> tuple[list[str], list[Server]]:
    random = Random(seed)
    acknowledged: list[str] = []
    servers = [kind(f"p{i}", log, random, acknowledged) for i in range(3)]
    tasks = [server.process.start(server.work()) for server in servers]
    for _ in range(4):
        await asyncio.sleep(random.expovariate(0.05))
        stopped = random.choice(servers)
        stopped.process.stop()
        await asyncio.sleep(random.expovariate(0.05))
        stopped.process.go_on()
    for task in tasks:
        task.cancel()
    await asyncio.sleep(100)  # until no append is under way
    for task in tasks:
        assert task.cancelled(), task.exception()
    return acknowledged, servers


def problem(seed: int, kind: type[Server] = Server, log_kind: type[SharedLog] = SharedLog) -> str | None:
    """Return which promise a history breaks, None if it keeps all."""
    log = log_kind("run")
    try:
        acknowledged, servers = run_virtually(history(seed, kind, log), Random(seed))
    except (AssertionError, BrokenLogError) as error:
        return str(error)
    rows = log.rows
    if [row.number for row in rows] != list(range(1, len(rows) + 1)):
        return "gaps"
    values = [row.name for row in rows if row.owner != TERM]
    if len(set(values)) < len(values):
        return "twice"
    if not set(acknowledged) <= set(values):
        return "acknowledged, but not in the log"
    epochs = [row.epoch for row in rows]
    if epochs != sorted(epochs):
        return "a row of an old epoch behind one of a new epoch"
    holders = [row.name for row in rows if row.owner == TERM]
    if [row.epoch for row in rows if row.owner == TERM] != list(range(1, len(holders) + 1)):
        return "epochs"
    if any(set(server.read) - set(rows) for server in servers):
        return "somebody has read a row that is not there"
    return None


@pytest.mark.parametrize(("number", "epoch"), [(2, 1), (1, 2), (7, 3)])
def test_a_process_that_knows_a_row_that_the_log_lacks_does_not_lead(number: int, epoch: int) -> None:
    """As with a checkpoint that is newer than the log beside it."""

    async def lead() -> None:
        connection = LogConnection(SharedLog("run"), Link(Random(0), NO_FAULTS), "one")
        assert await Term(connection, "a").lead()
        await Term(connection, "b", number, epoch).lead()

    with pytest.raises(BrokenLogError, match=rf"it lacks row {number} of epoch {epoch}.*restore a backup"):
        run_virtually(lead(), Random(0))


def test_a_leader_whose_last_row_is_lost_says_so_and_ends() -> None:
    """As after a failover of the database to a replica that had not received it."""
    log = SharedLog("run")

    async def lead() -> None:
        term = Term(LogConnection(log, Link(Random(0), NO_FAULTS), "one"), "a")
        assert await term.lead()
        await term.append([Row(2, 1, "run", "pause")])
        del log.rows[1:]
        await term.append([Row(3, 1, "run", "resume")])

    with pytest.raises(BrokenLogError, match="lacks row 2, which was acknowledged: its database was restored, or has"):
        run_virtually(lead(), Random(0))


def test_a_row_whose_use_fails_is_yielded_again() -> None:
    async def follow() -> None:
        connection = LogConnection(SharedLog("run"), Link(Random(0), NO_FAULTS), "one")
        assert await Term(connection, "a").lead()
        term, numbers = Term(connection, "b"), list[int]()
        for _ in range(2):
            with suppress(OSError):
                async for row in term.follow():
                    numbers.append(row.number)
                    if len(numbers) == 1:
                        raise OSError
        assert (numbers, term.number) == ([1, 1], 1)

    run_virtually(follow(), Random(0))


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_nothing_acknowledged_is_lost_and_no_old_leader_writes(first: int) -> None:
    assert {seed: found for seed in range(first, first + cases(50)) if (found := problem(seed))} == {}


def test_most_histories_change_leaders_and_acknowledge_values() -> None:
    changes = 0
    for seed in range(20):
        log = SharedLog("run")
        acknowledged, _ = run_virtually(history(seed, Server, log), Random(seed))
        changes += sum(row.owner == TERM for row in log.rows) > 1 and len(acknowledged) > 5
    assert changes > 10


@pytest.mark.parametrize(("kind", "log"), [(Hasty, SharedLog), (Guesses, SharedLog), (Server, Unfenced)])
def test_faults_are_seen(kind: type[Server], log: type[SharedLog]) -> None:
    assert any(problem(seed, kind, log) for seed in range(50))
