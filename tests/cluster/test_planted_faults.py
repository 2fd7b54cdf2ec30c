"""Faults that are planted into the code, each of which a few schedules have to find."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.registry import Kind
from offbeat.service.engine.update_intake import UpdateIntake
from offbeat.service.engine.waiting_clients import WaitingClients
from offbeat.service.http.confirmed_denials import ConfirmedDenials
from offbeat.service.internal.front_endpoint import _FrontChannel
from offbeat.service.log.log import ReplacedError, Row, UnknownOutcomeError
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.log.term import Term
from offbeat.service.refusal import Refusal
from offbeat.service.store.shared_files import SharedFiles
from offbeat.service.updates.update_header import Header
from tests.cluster.shared_log import SharedLog
from tests.cluster.world import play

_MOST_SEEDS = 300  # few find some of the faults

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledge_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    async def wait(self: LogWriter, *, on_reserve: bool = False) -> None:
        pass

    patch.setattr(LogWriter, "wait_until_durable", wait)


def append_without_a_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SharedLog, "check_end", lambda self, after: None)


def write_the_blob_after_the_row(patch: pytest.MonkeyPatch) -> None:
    upload, tasks = SharedFiles.upload, set[Any]()

    async def later(self: SharedFiles, path: Path, name: str) -> None:
        async def work() -> None:
            await asyncio.sleep(0.01)
            await upload(self, path, name)

        tasks.add(asyncio.create_task(work()))

    patch.setattr(SharedFiles, "upload", later)


def deny_without_a_look_at_the_log(patch: pytest.MonkeyPatch) -> None:
    async def confirm(self: LogWriter) -> None:
        pass

    patch.setattr(LogWriter, "confirm", confirm)


def deny_over_http_at_once(patch: pytest.MonkeyPatch) -> None:
    async def call(self: ConfirmedDenials, scope: Any, receive: Any, send: Any) -> None:
        await self._app(scope, receive, send)

    patch.setattr(ConfirmedDenials, "__call__", call)


def go_on_after_a_failed_append(patch: pytest.MonkeyPatch) -> None:
    append = Term.append

    async def go_on(self: Term, rows: Sequence[Row]) -> None:
        try:
            await append(self, rows)
        except ReplacedError:
            self.number += len(rows)

    patch.setattr(Term, "append", go_on)


def take_an_unknown_outcome_for_a_success(patch: pytest.MonkeyPatch) -> None:
    append = Term.append

    async def guess(self: Term, rows: Sequence[Row]) -> None:
        try:
            await append(self, rows)
        except UnknownOutcomeError:
            self._unsettled = []
            self.number += len(rows)

    patch.setattr(Term, "append", guess)


def take_over_without_the_last_row(patch: pytest.MonkeyPatch) -> None:
    follow = Term.follow

    async def follow_almost(self: Term) -> AsyncIterator[Row]:
        rows = [row async for row in follow(self)]
        for row in rows[:-1] if len(rows) > 5 else rows:
            yield row

    patch.setattr(Term, "follow", follow_almost)


def begin_no_epoch(patch: pytest.MonkeyPatch) -> None:
    lead = Term.lead

    async def begin(self: Term) -> bool:
        if self.number == 0:
            return await lead(self)
        self.is_leader = True
        return True

    patch.setattr(Term, "lead", begin)


def keep_a_stale_cache_of_tokens(patch: pytest.MonkeyPatch) -> None:
    check, known = Accounts.check_hash, dict[str, int]()

    def check_once(self: Accounts, hashed: str, kind: Kind) -> int:
        if hashed not in known:
            known[hashed] = check(self, hashed, kind)
        return known[hashed]

    patch.setattr(Accounts, "check_hash", check_once)


def publish_before_the_rows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogWriter, "run_once_durable", lambda self, action: action())


def answer_from_memory(patch: pytest.MonkeyPatch) -> None:
    """A repeated upload is answered with a receipt that may not be in the log."""

    async def repeated(self: UpdateIntake, client: int, visit: int, header: Header) -> Any:
        async with self._engine.lock:
            receipt = self._engine.outcome(client, visit, header.digest)
        if receipt is None:
            raise Refusal("busy", "try again")
        return receipt

    patch.setattr(UpdateIntake, "repeated", repeated)


def wake_nobody(patch: pytest.MonkeyPatch) -> None:
    """A client that waits hears of its work when its time is over."""
    patch.setattr(WaitingClients, "wake", lambda self, client: None)


def forget_who_waits_at_a_front(patch: pytest.MonkeyPatch) -> None:
    """A turn that the leader does not pass on."""
    patch.setattr(_FrontChannel, "_go_on", lambda self, number, question, turn: None)


FAULTS: dict[Plant, tuple[str | None, int]] = {  # the trouble that shows it most, and a seed that has shown it
    acknowledge_before_the_commit: ("kill", 0),
    append_without_a_fence: ("stop", 0),
    write_the_blob_after_the_row: (None, 0),
    deny_without_a_look_at_the_log: ("stop", 90),
    deny_over_http_at_once: ("stop", 32),
    go_on_after_a_failed_append: ("stop", 10),
    take_an_unknown_outcome_for_a_success: ("kill", 5),
    take_over_without_the_last_row: ("kill", 1),
    begin_no_epoch: ("stop", 1),
    keep_a_stale_cache_of_tokens: (None, 25),
    publish_before_the_rows: ("cut_log", 17),
    answer_from_memory: ("cut_log", 1),
    wake_nobody: (None, 6),
    forget_who_waits_at_a_front: (None, 27),
}


@pytest.mark.parametrize("plant", FAULTS)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the seed that has shown it on, since any change of the code makes other schedules."""
    plant(monkeypatch)
    trouble, first = FAULTS[plant]
    for seed in range(first, first + _MOST_SEEDS):
        if broken := play(seed, trouble).promises.broken:
            print(f"seed {seed}:", *broken, sep="\n  ")
            return
    pytest.fail(f"no schedule of {_MOST_SEEDS} finds it")
