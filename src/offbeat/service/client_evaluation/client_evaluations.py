"""Evaluations by clients: the chosen clients and their answers."""

import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from offbeat_core.files import write_durably
from offbeat_core.serving.console_log import event

from offbeat.client_metrics import ClientResult
from offbeat.service.client_evaluation.evaluation_round import EvaluationRound, RoundSummary
from offbeat.service.log.log import Change, Row
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.refusal import Refusal
from offbeat.uniform_numbers import choose_clients

OWNER = "evaluations"
"""The owner of the log's rows of evaluations by clients."""

FILE = "client_evaluations.jsonl"

_RECENT_SECONDS = 600.0  # a client from which nothing has been heard for so long is not chosen


@dataclass(frozen=True)
class ClientEvaluationSettings:
    """Settings of evaluation on clients."""

    number: int  # of clients that evaluate a version
    every_versions: int
    wait_seconds: float  # for the chosen clients
    lower_is_better: frozenset[str]  # the metrics whose highest values are the worst
    seed: int  # the run's


class ClientEvaluations:
    """Rounds of evaluation, one at a time, in memory and in the log.

    A round is over when each chosen client has answered or given up, after some time, or when the next begins. After a
    restart the last round goes on if it was not over.

    Args:
        settings: How clients evaluate.
        folder: For the file of all rounds that are over.
        rows: The log's rows of earlier servers' evaluations.
        log_writer: Writes to the log.
        clients: Number of clients N.
        is_at_work: Whether a client has a slot in the run, which is not over.
        now: The run's time in seconds.
        on_end: Called with each round that is over, also with those of earlier servers.

    ``last`` is the summary of the last round that is over; None before.
    """

    def __init__(
        self,
        settings: ClientEvaluationSettings,
        folder: Path,
        rows: Iterable[Row],
        log_writer: LogWriter,
        *,
        clients: int,
        is_at_work: Callable[[int], bool],
        now: Callable[[], float],
        on_end: Callable[[RoundSummary], None],
    ) -> None:
        self.last: RoundSummary | None = None
        self._settings = settings
        self._path = folder / FILE
        self._log_writer = log_writer
        self._clients = clients
        self._is_at_work = is_at_work
        self._now = now
        self._on_end = on_end
        self._heard: dict[int, float] = {}  # when each client that can evaluate was heard from
        self._round: EvaluationRound | None = None
        self._ends = 0.0
        self._load(rows)

    @property
    def needed_versions(self) -> set[int]:
        """The version that clients are to evaluate, if there is one."""
        return {self._round.version} if self._round is not None and self._round.asked else set()

    @property
    def ends(self) -> float:
        """The latest end of the open round; infinity if there is none."""
        return self._ends if self.needed_versions else math.inf

    def hear(self, client: int, *, can_evaluate: bool) -> None:
        """Record that a client is available, and whether it can evaluate."""
        if can_evaluate:
            self._heard[client] = self._now()
        else:
            self.forget(client)

    def grow(self, clients: int) -> None:
        """Choose among so many clients from now on."""
        self._clients = clients

    def forget(self, client: int) -> None:
        """Ask a client no more."""
        self._heard.pop(client, None)
        self._skip([client])

    def erase(self, client: int, rows: Iterable[Row]) -> None:
        """Delete a client's answers, which the log's ``rows`` do not have any more."""
        self.forget(client)
        if self._round is not None:
            self._round.results.pop(client, None)
        if self._path.exists():
            lines = [one.line(self._settings.lower_is_better) for one in _rounds(rows) if not one.asked]
            write_durably(self._path, "".join(lines).encode())

    def wants(self, version: int) -> bool:
        """Return whether a version is to be evaluated."""
        return version % self._settings.every_versions == 0

    def begin(self, version: int) -> list[int]:
        """Begin the round of a version; return the chosen clients."""
        self.end()
        settings = self._settings
        chosen = choose_clients(settings.seed, version, self._clients, settings.number, self._is_available)
        if chosen:
            self._enter("begin", version=version, clients=chosen)
            self._round = EvaluationRound(version, chosen)
            self._ends = self._now() + settings.wait_seconds
        return chosen

    def asked(self, client: int) -> int | None:
        """Return the version that an idle client is to evaluate; None if there is none."""
        current = self._round
        is_asked = current is not None and client in current.asked and not self._is_at_work(client)
        return current.version if current is not None and is_asked else None

    def answer(self, version: int, result: ClientResult) -> bool:
        """Take a client's answer, or refuse it; return whether it counts."""
        current = self._round_of(version, result.client)
        if result.client in current.asked:
            self._enter("answer", version=version, **result._asdict())
            current.answer(result)
            self._end_if_complete()
        return result.client in current.results

    def give_up(self, version: int, client: int) -> None:
        """Record that a client that was asked does not evaluate a version."""
        self._round_of(version, client)
        self._skip([client])

    def pass_time(self) -> None:
        """End the round if it has lasted long enough."""
        if self._now() >= self.ends:
            self.end()

    def wait_again(self) -> None:
        """Let the clients of the round have all their time again, as after a pause."""
        self._ends = self._now() + self._settings.wait_seconds

    def end(self) -> None:
        """End the round; skip the clients that have not answered."""
        if self._round is not None:
            self._skip(list(self._round.asked))

    def _round_of(self, version: int, client: int) -> EvaluationRound:
        current = self._round
        if current is None or current.version != version or not current.has_chosen(client):
            raise Refusal("no-such-evaluation", f"the client is not asked to evaluate version {version}: check in")
        return current

    def _is_available(self, client: int) -> bool:
        heard = self._heard.get(client)
        return heard is not None and (self._now() - heard <= _RECENT_SECONDS or self._is_at_work(client))

    def _skip(self, clients: Iterable[int]) -> None:
        current = self._round
        skipped = [] if current is None else [client for client in clients if client in current.asked]
        if current is not None and skipped:
            self._enter("skip", version=current.version, clients=skipped)
            current.skip(skipped)
            self._end_if_complete()

    def _enter(self, change: str, /, **values: Any) -> None:
        self._log_writer.enter(Change(OWNER, change, values))

    def _end_if_complete(self) -> None:
        """Report the round if nobody is asked any more."""
        current = self._round
        if current is None or current.asked:
            return
        self.last = current.summary(self._settings.lower_is_better)
        self._on_end(self.last)
        means = {metric: found.weighted for metric, found in self.last.metrics.items()}
        event("evaluated_by_clients", **self.last.model_dump(exclude={"metrics"}), **means)
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(current.line(self._settings.lower_is_better))
        except OSError as error:  # which must not keep clients from their work; a restart writes the line
            event("evaluation_failed", logging.WARNING, version=current.version, problem=error.strerror)

    def _load(self, rows: Iterable[Row]) -> None:
        """Load all rounds, and write those that are over to the file again."""
        lines: list[str] = []
        for current in _rounds(rows):
            self._round = current
            if current.asked:
                self._ends = self._now() + self._settings.wait_seconds
            else:
                self.last = current.summary(self._settings.lower_is_better)
                self._on_end(self.last)
                lines.append(current.line(self._settings.lower_is_better))
        if lines or self._path.exists():
            write_durably(self._path, "".join(lines).encode())


def redacted(row: Row) -> Row | None:
    """Return the row of an answer as if there had been none; None for any other row."""
    if row.name != "answer":
        return None
    values = {"version": row.values["version"], "clients": [row.values["client"]]}
    return replace(row, name="skip", arguments=json.dumps(values, separators=(",", ":")))


def _rounds(rows: Iterable[Row]) -> Iterator[EvaluationRound]:
    """Yield the rounds that the log's rows make; the last one may go on."""
    current: EvaluationRound | None = None
    for row in rows:
        values = row.values
        if row.name == "begin":
            if current is not None:
                yield current
            current = EvaluationRound(values["version"], values["clients"])
        elif current is None:
            raise ValueError(f"no evaluation has begun before the log's row {row.number}")
        elif row.name == "answer":
            current.answer(ClientResult(values["client"], values["examples"], values["metrics"]))
        else:
            current.skip(values["clients"])
    if current is not None:
        yield current
