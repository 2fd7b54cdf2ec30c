"""The log of several servers in memory, and a server's connection to it in place of ``SqlLog``."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql import operators
from sqlalchemy.sql.expression import ColumnClause

from offbeat.service.log.log import LogUnavailableError, ReplacedError, Row, UnknownOutcomeError
from offbeat.service.log.signs_of_life import SeenLeader
from tests.cluster.link import BrokenLinkError, Link, NotSentError


class SharedLog:
    """The rows, as a database keeps them.

    Attributes:
        rows: The rows; small updates that were forgotten are missing.
        history: The same rows with all small updates.
    """

    def __init__(self, run: str, appended: Callable[[str, Row], None] = lambda writer, row: None) -> None:
        self.run = run
        self.rows: list[Row] = []
        self.history: list[Row] = []
        self.leader: SeenLeader | None = None
        self._appended = appended

    def append(self, writer: str, rows: Sequence[Row], after: tuple[int, int]) -> None:
        self.check_end(after)
        for row in rows:
            self.rows.append(row)
            self.history.append(row)
            self._appended(writer, row)

    def check_end(self, after: tuple[int, int]) -> None:
        last = (self.rows[-1].number, self.rows[-1].epoch) if self.rows else (0, 0)
        if last != after:
            raise ReplacedError(f"the last row is {last}, not {after}")

    def read(self, after: int, limit: int) -> list[Row]:
        return [row for row in self.rows[after : after + limit] if row.number > after]

    def last_epoch(self) -> int:
        return self.rows[-1].epoch if self.rows else 0

    def forget_bodies(self, last: int) -> None:
        for i, row in enumerate(self.rows[:last]):
            if row.body is not None:
                self.rows[i] = replace(row, body=None)

    def beat(self, epoch: int, name: str) -> None:
        if self.leader is not None and self.leader.epoch > epoch:
            raise ReplacedError(f"it has begun epoch {self.leader.epoch}")
        self.leader = SeenLeader(epoch, 0 if self.leader is None else self.leader.beats + 1, name)


class LogConnection:
    """A server's connection to the log, with the methods of ``SqlLog``."""

    def __init__(self, log: SharedLog, link: Link, writer: str) -> None:
        self.run = log.run
        self.place: dict[str, Any] | None = None
        self._log = log
        self._link = link
        self._writer = writer

    async def append(self, rows: Sequence[Row], *, after: tuple[int, int]) -> None:
        rows = list(rows)
        try:
            await self._link.call(lambda: self._log.append(self._writer, rows, after))
        except BrokenLinkError:
            raise UnknownOutcomeError("the connection broke") from None
        except NotSentError:
            raise LogUnavailableError("no connection") from None

    async def read(self, after: int, limit: int) -> list[Row]:
        return await self._ask(lambda: self._log.read(after, limit))

    async def last_epoch(self) -> int:
        return await self._ask(self._log.last_epoch)

    async def forget_bodies(self, last: int) -> None:
        await self._ask(lambda: self._log.forget_bodies(last))

    async def tidy(self) -> None:
        pass

    async def beat(self, epoch: int, name: str) -> None:
        await self._ask(lambda: self._log.beat(epoch, name))

    async def stand_by(self, number: int, epoch: int, name: str) -> None:
        await self._ask(lambda: None)

    async def end_hung(self) -> None:
        pass

    async def leader(self) -> SeenLeader | None:
        return await self._ask(lambda: self._log.leader)

    def leader_now(self) -> SeenLeader | None:
        return self._at_once(lambda: self._log.leader)

    def newest_now(self, owner: str) -> Row | None:
        return self._at_once(lambda: next((row for row in reversed(self._log.rows) if row.owner == owner), None))

    def read_now(self, which: sa.ColumnElement[bool], limit: int | None = None) -> list[Row]:
        return self._at_once(lambda: [row for row in self._log.rows if _value(which, row)][:limit])

    def close(self) -> None:
        pass

    async def _ask(self, work: Callable[[], Any]) -> Any:
        try:
            return await self._link.call(work)
        except (NotSentError, BrokenLinkError) as error:
            raise LogUnavailableError(str(error)) from None

    def _at_once(self, work: Callable[[], Any]) -> Any:
        if self._link.fails_now():
            raise LogUnavailableError("no connection")
        return work()


def _value(expression: Any, row: Row) -> Any:
    """Return what an expression of the log's columns is for a row."""
    match expression:
        case sa.Column():
            return getattr(row, expression.name)
        case ColumnClause(is_literal=True):
            return ast.literal_eval(expression.name)
        case sa.BindParameter():
            return expression.value
        case sa.BinaryExpression():
            operator: Any = expression.operator
            return operator(_value(expression.left, row), _value(expression.right, row))
        case sa.BooleanClauseList() if expression.operator is operators.and_:
            return all(_value(clause, row) for clause in expression.clauses)
        case _:
            raise NotImplementedError(f"the simulated log does not know {expression}")
