"""The opening of sealed sums, one after the other, by the helper."""

import asyncio
import hashlib
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.files import durable_file
from offbeat_core.serving.console_log import event

from offbeat.algorithms.components import ClosedBuffer
from offbeat.algorithms.components.buffers.secret import SecretSum
from offbeat.service.engine.engine import Engine
from offbeat.service.masked.helper_protocol import HelperAnswer, HelperRefusedError, MaskHelper
from offbeat.service.masked.masked_shares import MaskedShares
from offbeat.service.refusal import Refusal
from offbeat.service.updates.update_body import StoredUpdate

T = TypeVar("T")
E = TypeVar("E", bound=Exception)

_FACTS_SECONDS = 30.0  # between two questions whether the helper is well
_FIRST_RETRY_SECONDS = 0.5
_LAST_RETRY_SECONDS = 30.0

_OLD_SERVER = (
    "this server's folder is an old copy, or another server uses this helper: put the newest folder back, or begin a "
    "new run from its model (service.initial_model)"
)
_OLD_HELPER = (
    "the helper's folder is an old copy: its operator puts the newest one back, or enrols again, which begins a new run"
)
_SPENT = frozenset({"participations-spent", "epsilon-spent"})  # in earlier runs, of which this server knows nothing
_OPENED_BEFORE = ("other-batch", "answer-erased")  # kinds of refusals


class SumOpener:
    """Has the helper open each sealed sum, oldest first.

    1. Once the log of a sum is on disk, so that a restart seals the same one, its share records go to the helper.
    2. The aggregator's thread subtracts the answer from the masked sum, and writes the opened sum to a file, on disk.
    3. With the lock held, the coordinator gets the opened sum, the call goes to the log, and new work is assigned.

    A server that is killed in between asks again after its restart, and gets the same answer. A replay of the log never
    needs the helper. While the helper cannot be reached or refuses, clients go on, and versions wait.

    ``folder`` is where opened sums are stored.
    """

    def __init__(self, engine: Engine, helper: MaskHelper, folder: Path) -> None:
        assert engine.shares is not None
        assert isinstance(engine.coordinator.algorithm.buffer, SecretSum)
        self._engine = engine
        self._buffer = engine.coordinator.algorithm.buffer
        self._shares: MaskedShares = engine.shares
        self._helper = helper
        self._folder = folder
        self._needs_facts = True

    async def run(self) -> None:
        """Open sums as they are sealed; never returns."""
        retry_seconds = _FIRST_RETRY_SECONDS
        while True:
            self._engine.has_sealed.clear()
            problem = await self._try()
            self._report(problem)
            if problem is not None:
                await asyncio.sleep(retry_seconds)
                retry_seconds = min(2 * retry_seconds, _LAST_RETRY_SECONDS)
                self._needs_facts = True
                continue
            retry_seconds = _FIRST_RETRY_SECONDS
            if self._oldest() is None and not self._needs_facts:
                try:
                    async with asyncio.timeout(_FACTS_SECONDS):
                        await self._engine.has_sealed.wait()
                except TimeoutError:
                    self._needs_facts = True

    def _report(self, problem: str | None) -> None:
        facts = self._shares.facts
        if problem != facts.problem:
            if problem is None:
                event("helper_answers")
            else:
                event("helper_problem", logging.WARNING, problem=problem)
        facts.problem = problem

    async def _try(self) -> str | None:
        """Open the oldest sum; return why the helper cannot, None if it did."""
        try:
            if self._needs_facts:
                facts = await in_thread(self._helper.facts)
                self._shares.facts.take(facts)
                self._check_number(facts.head.number)
                self._needs_facts = False
            closed = self._oldest()
            if closed is not None:
                await self._open(closed)
                self._needs_facts = True
        except OSError as error:
            return str(self._engine.disk.refusal(error))
        except (OffbeatError, Refusal) as error:
            return str(_released(error))
        return None

    def _check_number(self, opened: int) -> None:
        """Raise ``OffbeatError`` if the helper opened other sums than this server knows."""
        sums = self._engine.coordinator.sealed_sums
        known = sums.next_number - 1
        # The answers to those that are sealed here may have been lost.
        if not known <= opened <= known + len(sums.waiting()):
            advice = _OLD_HELPER if opened < known else _OLD_SERVER
            raise OffbeatError(f"the helper has opened {opened} sums and this server {known}: {advice}")

    def _oldest(self) -> ClosedBuffer | None:
        """Return the oldest sealed sum, which only this object opens or changes."""
        waiting = self._engine.coordinator.sealed_sums.waiting()
        return waiting[0] if waiting and not self._engine.run.is_finished else None

    async def _open(self, closed: ClosedBuffer) -> None:
        engine, sums = self._engine, self._engine.coordinator.sealed_sums
        await engine.log_writer.wait_until_durable()
        number = sums.next_number
        records = [entry.update.share or b"" for entry in closed.entries]
        try:
            answer = await in_thread(lambda: self._helper.open(number, records))
        except HelperRefusedError as refusal:
            await self._withdraw(closed, _released(refusal))
            return
        opened = await engine.publisher.aggregate(lambda: self._opened(closed, number, answer))
        if opened is not None and engine.shared is not None:
            await engine.shared.upload(opened.path, f"updates/{opened.path.name}")
        async with engine.lock:
            if opened is None:
                event("sum_discarded", logging.WARNING, sum=number)
                sums.discard(engine.run.now)
            else:
                sums.reveal(engine.run.now, opened)
            await engine.try_to_assign()

    async def _withdraw(self, closed: ClosedBuffer, refusal: HelperRefusedError) -> None:
        """Take out the client that a refusal names; raise it if it names none."""
        client = None if refusal.client is None else self._shares.client(refusal.client)
        if client is None or all(entry.update.client != client for entry in closed.entries):
            raise OffbeatError(f"{refusal}: {_OLD_SERVER}") if refusal.kind in _OPENED_BEFORE else refusal
        event("share_refused", logging.WARNING, client=client, kind=refusal.kind, detail=refusal.detail)
        coordinator, now = self._engine.coordinator, self._engine.run.now
        async with self._engine.lock:
            coordinator.sealed_sums.withdraw(now, client)
            if refusal.kind in _SPENT and coordinator.participation is not None:
                coordinator.limit_participation(now, client, coordinator.participation.counts()[client])
            await self._engine.try_to_assign()

    def _opened(self, closed: ClosedBuffer, number: int, answer: HelperAnswer) -> StoredUpdate | None:
        """Return the opened sum, on disk; None if it is out of range."""
        masked = self._buffer.masked_sum(closed).numpy().view(np.uint32)
        words = np.subtract(masked, answer.words, out=masked).view(np.int32)
        try:
            self._buffer.check_opened(torch.from_numpy(words))
        except ValueError:
            return None
        path = self._folder / f"sum-{number}-{token_hex(8)}"
        little_endian: NDArray[np.int32] = words.astype("<i4", copy=False)
        with durable_file(path, 0o600) as file:
            file.write(little_endian.data)
        digest = hashlib.sha256(little_endian.data).hexdigest()
        return StoredUpdate(path, words.nbytes, len(words), None, digest, is_masked=True)


def _released(error: E) -> E:
    """Drop an error's traceback, whose frames hold a sum and its vectors' files."""
    return error.with_traceback(None)


async def in_thread(work: Callable[[], T]) -> T:
    """Do work in a thread of its own, which the end of the program does not wait for."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(set_it: Callable[[], None]) -> None:
        if not future.done():
            set_it()

    def run() -> None:
        try:
            result = work()
        except BaseException as error:
            failure = error
            outcome = lambda: future.set_exception(failure)  # noqa: E731
        else:
            outcome = lambda: future.set_result(result)  # noqa: E731
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(finish, outcome)

    threading.Thread(target=run, name="helper", daemon=True).start()
    return await future
