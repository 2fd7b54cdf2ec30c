"""The coordinator behind requests: calls in order, each on disk before its answer.

An upload, from its last byte to its receipt:

1. The body is checked; a large one is synced in its own file.
2. With the lock held, the coordinator receives the update, the call goes to the log, and new work is assigned.
3. The log writer appends the log's row, with a small body.
4. The receipt is sent.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from offbeat_core.messages import ShareMessage

from offbeat.coordinator import Assignment, Receipt, Unknown
from offbeat.service.client_evaluation.client_evaluations import ClientEvaluations
from offbeat.service.engine.call_recorder import CallRecorder
from offbeat.service.engine.live_run import LiveRun
from offbeat.service.engine.version_publisher import VersionPublisher
from offbeat.service.engine.waiting_clients import Turn, WaitingClients
from offbeat.service.log.log_writer import LogWriter
from offbeat.service.masked.masked_shares import MaskedShares
from offbeat.service.refusal import Refusal
from offbeat.service.store.disk import Disk
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.store.server_state import ServerState
from offbeat.service.store.shared_files import SharedFiles
from offbeat.service.updates.upload_history import UploadHistory

T = TypeVar("T")


class Engine:
    """The calls of a run's coordinator for clients, logged from now on.

    Each request of a client returns once all calls before it are on disk.

    The coordinator is used only with the lock held. A request that needs a new version frees the lock while the version
    is made, so that others go on, but for those that wait for work.

    ``state`` is that of the rest of the server, up to the log's last row. Large bodies are files in the folder
    ``updates``. ``shares`` is None if updates are not masked.

    Attributes:
        lock: Guards the coordinator.
        waiting: Clients waiting for work.
        calls: Logs the coordinator's calls.
        publisher: Writes versions.
        has_sealed: Set when a sum is sealed that a helper has to open.
        shared: The files that other servers have, too; None if there are none.
        life: Shows other servers that this one leads; None if there are none.
        must_assign: Whether the last attempt to assign work failed, so that clients may have to be given work.
    """

    def __init__(
        self,
        run: LiveRun,
        log_writer: LogWriter,
        models: ModelFiles,
        disk: Disk,
        history: UploadHistory,
        state: ServerState,
        updates: Path,
        shares: MaskedShares | None = None,
    ) -> None:
        self.run = run
        self.coordinator = run.coordinator
        self.log_writer = log_writer
        self.models = models
        self.disk = disk
        self.history = history
        self.state = state
        self.tally = state.tally
        self.lock = asyncio.Lock()
        self.waiting = WaitingClients()
        self.calls = CallRecorder(run, log_writer, self.tally)
        self.publisher = VersionPublisher(run.coordinator, models, log_writer, disk)
        self.updates = updates
        self.shares = shares
        self.has_sealed = asyncio.Event()
        self.shared: SharedFiles | None = None
        self.life: asyncio.Task[None] | None = None
        self.must_assign = False
        self._is_stopping = False
        self._dismissed: set[int] = set()  # clients, whose requests may be under way

    @property
    def problem(self) -> str | None:
        """The reason why the server cannot give out or take in work now, or None."""
        return self.log_writer.problem or self.publisher.problem

    def asked_evaluations(self, version: int) -> ClientEvaluations:
        """Return the evaluations by clients; ``Refusal`` if the run has none."""
        self.log_writer.check()
        if self.client_evaluations is None:
            raise Refusal("no-such-evaluation", f"clients do not evaluate version {version} of this run")
        return self.client_evaluations

    @property
    def client_evaluations(self) -> ClientEvaluations | None:
        """The evaluations by clients, or None."""
        return self.publisher.client_evaluations

    def asked_to_evaluate(self, client: int) -> int | None:
        """Return the version that an idle client is to evaluate; None while paused."""
        if self.client_evaluations is None or self.run.is_paused:
            return None
        return self.client_evaluations.asked(client)

    async def check_in(self, client: int, wait_seconds: float = 0.0) -> Assignment | Turn | None:
        """Return the client's visit; if there is no work None, or its turn if it waits."""
        async with self.lock:
            if wait_seconds and not self._is_stopping:
                found = await self._open_visit(client, wait_seconds)
                if isinstance(found, asyncio.Future):
                    return found
            else:
                found = await self.next_visit(client)
        await self.log_writer.wait_until_durable()
        return found

    async def next_visit(self, client: int) -> Assignment | None:
        """Return the client's visit, None if there is no work; the caller holds the lock."""
        found = await self._open_visit(client)
        if isinstance(found, asyncio.Future):
            found.cancel()
            return None
        return found

    async def _open_visit(self, client: int, wait_seconds: float | None = None) -> Assignment | Turn | None:
        """Return the client's visit, also a new one unless it is asked to evaluate.

        If there is no work return the client's turn, which the caller has to cancel unless it waits.
        """
        is_over = self.run.is_finished or client in self._dismissed
        if is_over or self.asked_to_evaluate(client) is not None:
            return None
        if not self.coordinator.visits.has_slot(client):
            turn = self.waiting.add(client, wait_seconds)
            self.coordinator.present(self.run.now, client)
            try:
                await self._assign()
            except BaseException:
                turn.cancel()
                raise
            if not turn.done():
                return turn
        return self.coordinator.visits.assignment(client)

    def outcome(self, client: int, visit: int, digest: str | None = None) -> Receipt | Unknown | None:
        """Return the receipt of a closed visit; None for an open one.

        The caller holds the lock. ``digest`` is that of the update that is being uploaded; None if none is.

        Raises:
            Refusal: ``no-such-visit``; or ``other-upload``: another update was received for the visit.
        """
        self.run.close_visits()
        visits = self.coordinator.visits
        if visits.assignment(client, visit) is not None:
            return None
        known = self.history.digests.get(client, visit)
        if digest is not None and known is not None and known != digest:
            raise Refusal("other-upload", f"another update was received for visit {visit}: check in for new work")
        receipt = _known_visit(lambda: self.coordinator.offer(self.run.now, client, visit))
        assert receipt is not None
        # Without its digest the update may be another one than the one that counted.
        may_be_another = digest is not None and known is None and receipt.counted
        return receipt if visits.remembers(client, visit) and not may_be_another else Unknown()

    async def offer(self, client: int, visit: int) -> tuple[Receipt | Unknown | None, ShareMessage | None]:
        """Return a visit's receipt; None if it is wanted, and the facts for its share."""
        share = None
        async with self.lock:
            receipt = self.outcome(client, visit)
            if receipt is None:
                receipt = self.coordinator.offer(self.run.now, client, visit)
                assignment = self.coordinator.visits.assignment(client)
                if receipt is None and self.shares is not None and assignment is not None:
                    share = self.shares.offer(assignment)
                await self.try_to_assign()
        await self.log_writer.wait_until_durable()
        return receipt, share

    async def heartbeat(self, client: int, visit: int) -> tuple[bool, bool]:
        """Renew a visit's lease; return whether its update is wanted, and urgent."""
        async with self.lock:
            is_wanted = self.outcome(client, visit) is None
            if is_wanted:
                self.log_writer.check_backlog()
                self.coordinator.renew(self.run.now, client, visit)
            is_urgent = client in self.coordinator.algorithm.urgent()
        await self.log_writer.wait_until_durable()
        return is_wanted, is_wanted and is_urgent

    async def give_up(self, client: int, visit: int) -> None:
        """Free a visit's slot; ``no-such-visit`` if the client was never given it."""
        async with self.lock:
            self.run.close_visits()
            _known_visit(lambda: self.coordinator.drop(self.run.now, client, visit))
            await self.try_to_assign()
        await self.log_writer.wait_until_durable()

    async def dismiss(self, client: int) -> None:
        """Free the slot of a client that is to get no more work."""
        async with self.lock:
            self._free_slot(client)
            await self.try_to_assign()

    def _free_slot(self, client: int) -> None:
        self.run.close_visits()
        assignment = self.coordinator.visits.assignment(client)
        if assignment is not None:
            self.coordinator.drop(self.run.now, client, assignment.visit)
        self._dismissed.add(client)
        self.waiting.wake(client)
        self.coordinator.absent(self.run.now, client)

    async def forget(self, client: int, begin: Callable[[], None]) -> int:
        """Free a client's slot for good; return how many updates the sums to come lose.

        See ``Coordinator.forget``. The row that ``begin`` enters and those of the coordinator's calls are appended at
        once: between them a checkpoint would add an update to its sum.
        """
        await self.publisher.publish()  # so that the lock is held for less time
        async with self.lock:
            begin()
            self.tally.forget(client)
            self.history.forget(client)
            self._free_slot(client)
            updates = self.coordinator.forget(self.run.now, client)
            await self.try_to_assign()
            return updates

    def free_slots(self) -> None:
        """Free all slots of a finished run that continues; the caller holds the lock.

        Clients may have been answered that the updates of their visits do not count, so they get other visits.
        """
        self.coordinator.finish(self.run.now)
        for client in list(self.coordinator.visits.held_slots):
            self.coordinator.free_slot(self.run.now, client)

    async def weigh_clients(self, examples: Sequence[int]) -> None:
        """Begin a run that waits for its clients' examples; do nothing in any other."""
        async with self.lock:
            if self.coordinator.waits_for_examples:
                self.coordinator.weigh_clients(self.run.now, examples)
                await self.try_to_assign()

    async def grow(self, clients: int) -> None:
        """Let the run have so many clients; ``ValueError`` if it cannot."""
        async with self.lock:
            self.coordinator.grow(self.run.now, clients)
            self.history.norms.grow(clients)
            self.state.run.clients = clients
            if self.client_evaluations is not None:
                self.client_evaluations.grow(clients)
            await self.try_to_assign()

    async def note_speed(self, client: int, step_seconds: float, upload_seconds: float) -> None:
        """Record how fast a client is; do nothing if it has had a visit."""
        async with self.lock:
            self.coordinator.note_speed(self.run.now, client, step_seconds, upload_seconds)
        await self.log_writer.wait_until_durable()

    async def note_steps(self, client: int, steps: int) -> None:
        """Record how many steps a client takes in its visits, once."""
        async with self.lock:
            self.coordinator.note_steps(self.run.now, client, steps)

    async def limit_participation(self, client: int, most: int) -> None:
        """Let a client take part in at most so many sums."""
        async with self.lock:
            self.coordinator.limit_participation(self.run.now, client, most)

    async def try_to_assign(self) -> None:
        """Give work to waiting clients; set ``must_assign`` if the disk is full."""
        try:
            await self._assign()
            self.must_assign = False
        except Refusal:
            self.must_assign = True
            self.run.alarm.expect(self.run.now)

    async def _assign(self) -> None:
        """Give work to waiting clients, after each call that may make some."""
        if self.coordinator.sealed_sums.waiting():
            self.has_sealed.set()
        if self._is_stopping:
            return
        self.publisher.note_due()
        while self.publisher.due:
            version = self.publisher.due[0]
            await self._without_lock(self.publisher.publish(version))
            for client in self.publisher.evaluate(version):
                self.waiting.wake(client)
                self.coordinator.absent(self.run.now, client)
        if self.client_evaluations is not None:
            self.run.alarm.expect(self.client_evaluations.ends)
        # Before the assignment, since it may fail.
        while self._needs_version():
            await self._without_lock(self.publisher.publish())
        if self.run.is_finished:
            self.waiting.wake_all()
        while self.waiting.gone:
            self.coordinator.absent(self.run.now, self.waiting.gone.pop())
        if not (self._is_stopping or self.run.is_finished or self.run.is_paused):
            for assignment in self.coordinator.assign(self.run.now):
                self.waiting.wake(assignment.client)

    def _needs_version(self) -> bool:
        """Return whether the newest version has to be written before anything else."""
        if self.run.is_finished:
            self.run.close_visits()
            return self.publisher.is_behind
        return self.publisher.is_behind and not self.run.is_paused and self.coordinator.has_work

    async def _without_lock(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work while others may hold the lock, which is held before and after."""
        self.lock.release()
        try:
            await work
        finally:
            cancelled: asyncio.CancelledError | None = None
            while True:
                try:
                    await self.lock.acquire()
                    break
                except asyncio.CancelledError as error:  # the caller would release a lock that it does not hold
                    cancelled = error
            if cancelled is not None:
                raise cancelled

    async def confirm(self) -> None:
        """Wait until a denial holds after a kill, too, and whichever server leads next.

        All rows so far are durable then, and no other server has appended any.

        Raises:
            Refusal: Another server leads, whose rows may make the answer untrue; or the log cannot be used.
        """
        await self.log_writer.wait_until_durable()
        if self.shared is not None:
            await self.log_writer.confirm()

    def stop(self) -> None:
        """Give out no more work."""
        self._is_stopping = True
        self.waiting.wake_all()

    async def close(self) -> None:
        """Write the rest of the log, and end all threads."""
        if self.life is not None:
            self.life.cancel()
        await self.log_writer.close()
        self.publisher.close()


def _known_visit(call: Callable[[], T]) -> T:
    """Make a call of the coordinator, or raise ``no-such-visit``."""
    try:
        return call()
    except ValueError as error:
        raise Refusal("no-such-visit", f"{error}: check in for new work") from None
