"""The coordinator in a world of requests: who waits for work, what is logged, when leases end."""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from torch import Tensor

from offbeat.coordinator import Coordinator
from offbeat.coordinator.calls import Assignment, Call, Receipt, Unknown
from offbeat.service.engine.evaluation import Evaluations
from offbeat.service.engine.waiting_clients import Answer, WaitingClients
from offbeat.service.logs import event
from offbeat.service.refusal import Refusal
from offbeat.service.store.call_records import NOT_LOGGED, DiscardedUpdate, arguments_of
from offbeat.service.store.disk import Disk
from offbeat.service.store.journal import Journal
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.store.segments import Segment, Segments
from offbeat.service.updates.digests import Digests
from offbeat.service.updates.update_body import Body, StoredUpdate
from offbeat.service.updates.update_files import UpdateFiles
from offbeat.service.updates.update_header import UpdateHead
from offbeat.service.updates.usual_norms import UsualNorms
from offbeat_client.local_plan import normaliser

_NORMALISER_TIMES = 10  # how far a client's own optimiser may be from the plan's SGD

T = TypeVar("T")


class Engine:
    """Makes the coordinator's calls, one after the other, and lets nobody hear of one before it is on disk.

    The coordinator is only touched under a lock: by the event loop, or, where vectors are added up, by the one thread
    of ``aggregator`` on its behalf. So requests wait for each other no longer than the making of a version takes.

    Args:
        coordinator: As it was when the server ended, or fresh.
        journal: Where its calls are logged.
        models: Where versions are put for clients to download.
        segments: Where small updates are stored.
        disk: Decides what follows from a failure of the disk.
        digests: Of the clients' last uploads.
        norms: Of the clients' latest updates, which limit those of the next.
        now: Seconds since the run began, not counting when no server ran.
        stop_versions: The run is over at this version; infinity for never.
        clock: Seconds that pass evenly.

    Attributes:
        checkpoint_lock: Held by the thread that writes a checkpoint, also if nobody waits for it any more.
        evaluations: Where versions are measured; None for nowhere.
        files: Those that updates lie in.
        waiting: Who waits for work.
        kept_versions: What was needed at the last checkpoint, and may just be downloaded.
        reserve_size: Bytes of the disk to keep back for the next checkpoint, its model and the log.
        stored_bytes: Of all updates that have been stored, also of those that have been deleted again.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        journal: Journal,
        models: ModelFiles,
        segments: Segments,
        disk: Disk,
        *,
        digests: Digests,
        norms: UsualNorms,
        now: float,
        stop_versions: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.coordinator = coordinator
        self.journal = journal
        self.models = models
        self.segments = segments
        self.disk = disk
        self.digests = digests
        self.norms = norms
        self.lock = asyncio.Lock()
        self.checkpoint_lock = threading.Lock()
        self.evaluations: Evaluations | None = None
        self.kept_versions: set[int] = set()
        self.files = UpdateFiles()
        self.waiting = WaitingClients()
        self._published = -1
        self._publish_problem: str | None = None
        self._must_assign = False
        self._stopping = False
        self._stop_versions = stop_versions
        self._clock = clock
        self._began = clock() - now
        self._aggregator = ThreadPoolExecutor(1, thread_name_prefix="aggregator")
        self._evaluated = coordinator.algorithm.version
        self._refused_steps = len(coordinator.algorithm.refused_steps)  # that the log has been told of
        self.stored_bytes = 0
        self.reserve_size = 0
        self._incoming: tuple[str, Segment | None] = ("", None)  # the update that is taken in: SHA-256, what to sync
        self._next_tick = self.now + (coordinator.algorithm.period or math.inf)

    @property
    def now(self) -> float:
        """Seconds since the run began, not counting when no server ran."""
        return self._clock() - self._began

    @property
    def finished(self) -> bool:
        """Whether the run is over."""
        return self.coordinator.algorithm.version >= self._stop_versions

    @property
    def problem(self) -> str | None:
        """Why the server cannot give out or take in work now; None if it can."""
        return self.journal.problem or self._publish_problem

    def record(self, call: Call) -> None:
        """Log a call that the coordinator has carried out."""
        if call.name in NOT_LOGGED:
            return
        arguments, vector = arguments_of(call), call.arguments.get("vector")
        event(call.name, version=self.coordinator.algorithm.version, **arguments)
        if vector is None:
            self.journal.record(call.name, arguments)
            return
        digest, file = self._incoming
        if not isinstance(vector, StoredUpdate):
            self.journal.record(call.name, arguments, None, None, None, digest)
            return
        place = vector.path.name, vector.offset, vector.size, digest
        self.stored_bytes += vector.size
        self.files.note(self.journal.record(call.name, arguments, *place, file=file), vector)

    async def check_in(self, client: int, wait_seconds: float) -> Assignment | None:
        """Return the client's visit: the one that is open, or a new one, if there is one within ``wait_seconds``."""
        answer = None
        async with self.lock:
            assignment = await self._work_now(client)
            if assignment is None and wait_seconds and not self.finished:
                answer = self._begin_to_wait(client)
        if answer is not None:
            assignment = await self._wait(client, answer, wait_seconds)
        await self.journal.durable()
        return assignment

    async def _work_now(self, client: int) -> Assignment | None:
        """Return the client's visit: the one that is open, or a new one if there is one now."""
        if self.finished:
            return None
        if self.coordinator.is_open(client):
            return self.coordinator.assignment(client)
        answer = self._begin_to_wait(client)
        try:
            await self._assign()
        finally:
            self._end_to_wait(client, answer)
        return answer.result() if answer.done() else None

    async def _wait(self, client: int, answer: Answer, seconds: float) -> Assignment | None:
        try:
            await asyncio.wait([answer], timeout=seconds)
        finally:
            async with self.lock:
                self._end_to_wait(client, answer)
        return answer.result() if answer.done() else None

    def _begin_to_wait(self, client: int) -> Answer:
        answer = self.waiting.begin(client)
        self.coordinator.present(self.now, client)
        return answer

    def _end_to_wait(self, client: int, answer: Answer) -> None:
        if self.waiting.end(client, answer):
            self.coordinator.absent(self.now, client)

    async def ask(self, client: int, visit: int) -> Receipt | Unknown | None:
        """Return None if the update of a visit is wanted, else what has become of it.

        Raises:
            Refusal: ``no-such-visit``.
        """
        async with self.lock:
            receipt = self._over(client, visit)
            if receipt is None:
                receipt = self.coordinator.offer(self.now, client, visit)
                await self._try_to_assign()
        await self.journal.durable()
        return receipt

    async def receive(
        self, client: int, visit: int, head: UpdateHead, update: Body, *, check_in: bool
    ) -> tuple[Receipt | Unknown, Assignment | None]:
        """Take in an update whose body has been checked; return its receipt, and the client's next visit.

        Args:
            client: Whose.
            visit: The visit's number.
            head: What the client says of it.
            update: A small one in memory, which is stored if it counts; or a large one in a file, which is on disk.
            check_in: Whether the client wants its next visit, if there is one now.

        Raises:
            Refusal: It would count but is malformed, or other bytes came before.
        """
        refusal: Refusal | None = None
        assignment: Assignment | None = None
        async with self.lock:
            receipt = self._over(client, visit, head.sha256)
            if receipt is None:
                self._incoming = (head.sha256, None)
                try:
                    receipt = self._receive(client, visit, head, update)
                except Refusal as error:
                    refusal = error  # perhaps its slot is free now
                await self._try_to_assign()
            if check_in and refusal is None:
                with suppress(Refusal):  # it asks again, and hears that the disk is full
                    assignment = await self._work_now(client)
        await self.journal.durable()
        if refusal is not None:
            raise refusal
        assert receipt is not None
        return receipt, assignment

    def check(self, client: int, visit: int, head: UpdateHead) -> None:
        """Check what a client says of an update, before there is a body.

        Raises:
            Refusal: ``wrong-version``, ``wrong-plan`` or ``no-loss``.
        """
        assignment = self.coordinator.assignment(client)
        if assignment is None or assignment.visit != visit:
            return
        if head.version != assignment.version:
            raise Refusal("wrong-version", f"the visit began from version {assignment.version}, not {head.version}")
        if head.steps > assignment.plan.steps:
            raise Refusal("wrong-plan", f"the plan has {assignment.plan.steps} steps, not {head.steps}")
        usual = normaliser(assignment.plan.prefix(head.steps)) if head.steps else 0.0
        if head.normaliser and not usual / _NORMALISER_TIMES <= head.normaliser <= usual * _NORMALISER_TIMES:
            raise Refusal(
                "wrong-plan",
                f"the normaliser of {head.steps} steps of this plan's SGD is {usual:.6g}; allowed are 0, and "
                f"{_NORMALISER_TIMES} times more or less, not {head.normaliser:.6g}",
            )
        if self.coordinator.algorithm.needs_loss and head.loss is None:
            raise Refusal("no-loss", "this run needs the visit's mean training loss: send loss, a finite number")

    def _receive(self, client: int, visit: int, head: UpdateHead, update: Body) -> Receipt:
        assignment, algorithm = self.coordinator.assignment(client), self.coordinator.algorithm
        assert assignment is not None
        self.check(client, visit, head)
        base = self.models.read(assignment.version) if algorithm.needs_base else None
        vector = self._store(update) if self.coordinator.is_wanted(client, visit) else DiscardedUpdate()
        try:
            receipt = self.coordinator.receive(
                self.now,
                client,
                visit,
                vector,
                examples=head.examples,
                steps=head.steps,
                normaliser=head.normaliser,
                base=base,
                since=head.since,
                step_seconds=head.step_seconds,
                upload_seconds=head.upload_seconds,
                loss=head.loss if algorithm.needs_loss else None,
            )
        except ValueError as error:
            if vector is not update:
                self.segments.take_back()
            has_memory = algorithm.payload == "difference" or algorithm.corrects_gradients
            if has_memory and head.since != assignment.since:
                self.coordinator.drop(self.now, client, visit)
                raise Refusal("lost-memory", str(error)) from None
            raise Refusal("malformed-update", str(error)) from None
        self.digests.add(client, visit, head.sha256, counted=receipt.counted)
        return receipt

    def _store(self, update: Body) -> StoredUpdate:
        if isinstance(update, StoredUpdate):
            return update
        segment, begin = self.segments.append(update.data)
        self._incoming = (self._incoming[0], segment)
        return StoredUpdate(segment.path, begin, update.size, update.length, update.plan_compression)

    async def answered(self, client: int, visit: int, sha256: str) -> Receipt | Unknown:
        """Return what became of a visit that is over, for one that uploads again.

        Raises:
            Refusal: ``no-such-visit``, or other bytes came before.
        """
        async with self.lock:
            receipt = self._over(client, visit, sha256)
            assert receipt is not None
        await self.journal.durable()
        return receipt

    def _over(self, client: int, visit: int, sha256: str | None = None) -> Receipt | Unknown | None:
        """Return what has become of a visit that is over, None if it is not."""
        assignment = self.coordinator.assignment(client)
        if assignment is not None and assignment.visit == visit:
            if self.finished:
                return Receipt(False, self.coordinator.algorithm.version - assignment.version, False)
            return None
        known = self.digests.get(client, visit)
        if sha256 is not None and known is not None and known != sha256:
            raise Refusal("other-upload", f"another update was received for visit {visit}: check in for new work")
        receipt: Receipt = _known(lambda: self.coordinator.offer(self.now, client, visit))
        # Without the digest it is not known whether this is the update that counted.
        is_another_perhaps = sha256 is not None and known is None and receipt.counted
        return receipt if self.coordinator.remembers(client, visit) and not is_another_perhaps else Unknown()

    async def heartbeat(self, client: int, visit: int) -> tuple[bool, bool]:
        """Renew a visit's lease; return whether its update is still wanted, and whether it is urgent."""
        async with self.lock:
            wanted = self._over(client, visit) is None
            if wanted:
                self.coordinator.renew(self.now, client, visit)
            urgent = client in self.coordinator.algorithm.urgent()
        await self.journal.durable()
        return wanted, wanted and urgent

    async def give_up(self, client: int, visit: int) -> None:
        """Free a visit's slot."""
        async with self.lock:
            if not self.finished:
                _known(lambda: self.coordinator.drop(self.now, client, visit))
            await self._try_to_assign()
        await self.journal.durable()

    async def weigh_clients(self, examples: Sequence[int]) -> None:
        """Begin a run that waits for its clients' examples; nothing happens if it does not."""
        async with self.lock:
            if self.coordinator.waits_for_examples:
                self.coordinator.weigh_clients(self.now, examples)
                await self._try_to_assign()

    async def note_speed(self, client: int, step_seconds: float, upload_seconds: float) -> None:
        """Note how fast a client is; nothing happens if it has had a visit."""
        async with self.lock:
            self.coordinator.note_speed(self.now, client, step_seconds, upload_seconds)
        await self.journal.durable()

    async def keep_time(self) -> None:
        """Let leases lapse and periods pass; never returns."""
        while True:
            due = min(self.coordinator.next_lapse(), self._next_tick)
            # Leases that are given out meanwhile are looked at soon enough.
            await asyncio.sleep(0.1 if self.finished else min(max(due - self.now, 0.001), 0.1))
            if self._must_assign or (due <= self.now and not self.finished):
                async with self.lock:
                    self._pass_time()
                    await self._try_to_assign()

    def _pass_time(self) -> None:
        now, period = self.now, self.coordinator.algorithm.period
        self.coordinator.lapse(now)
        if period is not None and self._next_tick <= now:
            self.coordinator.tick(now)
            # Those that passed while nobody was there to see them are not made up for.
            self._next_tick += period * max(1, math.ceil((now - self._next_tick) / period))

    async def _try_to_assign(self) -> None:
        """Give work to those who wait; if the disk is full, later: what came before is done all the same."""
        try:
            await self._assign()
            self._must_assign = False
        except Refusal:
            self._must_assign = True

    async def _assign(self) -> None:
        """Give work to those who wait, if there is any; comes after all that can make a version."""
        if self._stopping:
            return
        await self._evaluate()
        if self.finished:
            await self.publish()
            self.waiting.let_go()
            return
        if not self.coordinator.has_work:
            return
        # First, since it may fail, and then nothing has happened.
        await self.publish()
        for assignment in self.coordinator.assign(self.now):
            self.waiting.tell(assignment)

    async def _evaluate(self) -> None:
        version = self.coordinator.algorithm.version
        if self.evaluations is not None and version > self._evaluated and self.evaluations.wants(version):
            await self.publish()
            self._evaluated = version
            try:
                self.evaluations.add(version)
            except OSError as error:  # no client need suffer for it
                event("evaluation_failed", version=version, problem=error.strerror)

    async def publish(self) -> None:
        """Write the newest version, with the lock held; it is published once the records before it are on disk.

        Raises:
            Refusal: It cannot be written, or what it is made of cannot be read.
        """
        algorithm = self.coordinator.algorithm
        version = algorithm.version
        if version == self._published:
            return
        try:
            await self.aggregate(lambda: self.models.write(version, algorithm.model, algorithm.down()))
            self.journal.publish(lambda: self.models.publish(version))
            self._published = version
            self._publish_problem = None
            self._tell_of_refused_steps()
        except OSError as error:
            self._publish_problem = f"version {version} cannot be made: {error.strerror or error}"
            raise self.disk.refusal(error) from None

    def _tell_of_refused_steps(self) -> None:
        refused = self.coordinator.algorithm.refused_steps
        for version, problem in islice(refused.items(), self._refused_steps, None):
            event("step_refused", logging.WARNING, version=version, problem=problem)
        self._refused_steps = len(refused)

    async def aggregate(self, work: Callable[[], T]) -> T:
        """Do what takes long with vectors, with the lock held, in the one thread for it."""
        return await asyncio.get_running_loop().run_in_executor(self._aggregator, work)

    async def result(self) -> Tensor:
        """Return what the run has learnt so far, ``(d,)``."""
        async with self.lock:
            return await self.aggregate(lambda: self.coordinator.algorithm.result)

    def needed_versions(self) -> set[int]:
        """Return the versions that somebody works from, and the newest."""
        algorithm, coordinator = self.coordinator.algorithm, self.coordinator
        return {algorithm.version} | {
            assignment.version
            for assignment in coordinator.unfinished()
            if algorithm.needs_base or coordinator.is_open(assignment.client)
        }

    def stop(self) -> None:
        """Give out no more work."""
        self._stopping = True
        self.waiting.let_go()

    def close(self) -> None:
        """End the aggregator's thread."""
        self._aggregator.shutdown()
        self.segments.close()


def _known(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except ValueError as error:
        raise Refusal("no-such-visit", f"{error}: check in for new work") from None
