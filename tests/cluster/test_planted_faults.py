"""Faults that are planted into the code, each of which a few schedules have to find."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.registry import Kind
from offbeat.service.http.confirmed_denials import ConfirmedDenials
from offbeat.service.log.log import ReplacedError, Row, UnknownOutcomeError
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.log.term import Term
from offbeat.service.store.shared_files import SharedFiles
from tests.cluster.shared_log import SharedLog
from tests.cluster.world import play

_MOST_SEEDS = 200  # few find some of the faults, and each change of the server makes other schedules

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


FAULTS: dict[Plant, str | None] = {  # each with the trouble that shows it most
    acknowledge_before_the_commit: "kill",
    append_without_a_fence: "stop",
    write_the_blob_after_the_row: None,
    deny_without_a_look_at_the_log: "stop",
    deny_over_http_at_once: "stop",
    go_on_after_a_failed_append: "stop",
    take_an_unknown_outcome_for_a_success: "kill",
    take_over_without_the_last_row: "kill",
    begin_no_epoch: "stop",
    keep_a_stale_cache_of_tokens: None,
}


@pytest.mark.parametrize("plant", FAULTS)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(_MOST_SEEDS):
        if broken := play(seed, FAULTS[plant]).promises.broken:
            print(f"seed {seed}:", *broken, sep="\n  ")
            return
    pytest.fail(f"no schedule of the first {_MOST_SEEDS} finds it")
