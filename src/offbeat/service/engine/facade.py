"""A server without its sockets: what the HTTP routes call."""

import asyncio
import hashlib
import math
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from offbeat.algorithms.components import LocalPlan
from offbeat.compression import uncompressed_bytes
from offbeat.coordinator.calls import Assignment, Receipt, Unknown
from offbeat.service import messages
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.accounts.declared_examples import within_share
from offbeat.service.engine.engine import Engine
from offbeat.service.engine.metrics import Metrics
from offbeat.service.refusal import Refusal
from offbeat.service.store.store import sync_file, sync_folder
from offbeat.service.updates.update_body import Body, BufferedUpdate, StoredUpdate, check_body, largest_body
from offbeat.service.updates.update_header import UpdateHead
from offbeat.service.updates.uploads import SMALL, Uploads, Whole
from offbeat.service.updates.usual_norms import norm_unit

RETRY_SECONDS = 5.0
"""When a client for which there is no work is to come back."""

LARGEST_PROBE = 2**18
"""Bytes that a client uploads at most to measure how fast that is."""


@dataclass(frozen=True)
class Limits:
    """What clients may do at most."""

    max_update_norm: float | None = None
    requests_a_second: float = 20.0  # of one client, over a while
    burst: int = 200  # requests of one client at once
    max_examples: int | None = None  # that a client may declare
    max_share: float = 1.0  # of one client in the objective; in a step the algorithm's buffer has it


class Service:
    """Checks what clients say, and passes it on.

    Args:
        engine: The coordinator.
        uploads: Bodies on their way here.
        accounts: Who may speak.
        run_id: Names the run, so that no two runs' versions are taken for each other.
        seed: The run's seed.
        lease_seconds: How long a slot is kept for a silent client; None for ever.
        limits: What clients may do at most.

    Attributes:
        ready: Whether requests are served; not any more while the server stops.
    """

    def __init__(
        self,
        engine: Engine,
        uploads: Uploads,
        accounts: Accounts,
        *,
        run_id: str,
        seed: int,
        lease_seconds: float | None,
        limits: Limits,
    ) -> None:
        self.engine = engine
        self.uploads = uploads
        self.accounts = accounts
        self.metrics = Metrics()
        self.ready = True
        self.run_id = run_id
        self._seed = seed
        self._lease_seconds = lease_seconds
        self._limits = limits
        self._allowance: dict[int, tuple[float, float]] = {}  # by client: requests that are left, and when

    def client(self, token: str | None) -> int:
        """Return whose token it is.

        Raises:
            Refusal: Nobody's, or it asks too often.
        """
        if not self.ready:
            raise Refusal("stopping", "the server is being stopped: try again in a while", {"Retry-After": "5"})
        client = self.accounts.check(token, "client")
        now = time.monotonic()
        left, then = self._allowance.get(client, (float(self._limits.burst), now))
        left = min(left + (now - then) * self._limits.requests_a_second, float(self._limits.burst)) - 1
        if left < 0:
            raise Refusal("too-many-requests", "too many requests: wait a while", {"Retry-After": "1"})
        self._allowance[client] = (left, now)
        return client

    async def enrol(self, token: str | None, enrolment: messages.Enrolment) -> messages.Enrolled:
        """Return a new client's number and token; the run begins with the last one if it waits for its clients."""
        number, own, seconds = self.accounts.enrol(token, enrolment.name, enrolment.token, enrolment.examples)
        await self.weigh_clients()
        return messages.Enrolled(client=number, token=own, expires_seconds=seconds)

    async def declare(self, client: int, examples: int) -> messages.Declaration:
        """Record how many examples a client holds; the run begins with the last one if it waits for its clients."""
        self.accounts.declare(client, examples)
        await self.weigh_clients()
        return messages.Declaration(examples=examples)

    async def revoke(self, client: int) -> None:
        """Revoke a client's token; a run that waits for its clients does not wait for this one."""
        self.accounts.revoke(client)
        await self.weigh_clients()

    async def weigh_clients(self) -> None:
        """Begin a run that waits for its clients' examples if all are known; all entered so far is then on disk."""
        if self.engine.coordinator.waits_for_examples and (examples := self.accounts.examples.all()):
            await self.engine.weigh_clients(within_share(examples, self._limits.max_share))
        await self.engine.journal.durable()

    def waits_for(self) -> str | None:
        """Return what has to happen before there is work, None if nothing has."""
        if not self.engine.coordinator.waits_for_examples:
            return None
        return f"{self.accounts.examples.missing()} of {self.engine.coordinator.clients} clients to enrol"

    async def check_in(self, client: int, wait_seconds: float) -> messages.CheckedIn:
        """Return a client's work, or when it is to come back.

        Raises:
            Refusal: The run waits until all clients have declared their examples, and this one has not.
        """
        if self.engine.coordinator.waits_for_examples and not self.accounts.examples.is_known(client):
            raise Refusal(
                "no-examples",
                "this run weighs every client by its examples: declare how many you hold (POST /v1/examples; in "
                "Python the attribute `examples` of the client)",
            )
        return self._checked_in(await self.engine.check_in(client, wait_seconds))

    def _checked_in(self, assignment: Assignment | None) -> messages.CheckedIn:
        if assignment is None:
            retry = None if self.engine.finished else RETRY_SECONDS
            return messages.CheckedIn(visit=None, retry_after_seconds=retry, finished=self.engine.finished)
        visit = messages.visit_message(
            assignment,
            self.engine.coordinator.algorithm,
            length=self.engine.models.length,
            seed=self._seed,
            lease_seconds=self._lease_seconds,
        )
        return messages.CheckedIn(visit=visit, retry_after_seconds=None, finished=False)

    def probe(self, client: int) -> messages.Probe:
        """Return what a client is to measure before its first visit."""
        coordinator, length = self.engine.coordinator, self.engine.models.length
        if self.engine.finished or not coordinator.wants_speed(client):
            return messages.Probe(probe=None, upload_bytes=0)
        newest = max(self.engine.models.versions())
        visit = messages.visit_message(
            Assignment(client, 0, newest, coordinator.local.prefix(1), math.inf, None),
            coordinator.algorithm,
            length=length,
            seed=self._seed,
            lease_seconds=None,
        )
        return messages.Probe(probe=visit, upload_bytes=min(uncompressed_bytes(length), LARGEST_PROBE))

    async def take_probe(self, client: int, size: int, pieces: AsyncIterator[bytes]) -> messages.ProbeBody:
        """Read the body of a probe, and forget it."""
        if size > LARGEST_PROBE:
            raise Refusal("too-large", f"a probe has at most {LARGEST_PROBE} bytes, not {size}")
        return messages.ProbeBody(bytes=len(await self.uploads.read(client, size, pieces)))

    async def upload_state(self, client: int, visit: int) -> messages.UploadState:
        """Return whether an update would count, and how much of it is there."""
        answer = await self.engine.ask(client, visit)
        if answer is not None:
            self._note(answer)
            return messages.UploadState(wanted=False, offset=0, receipt=messages.receipt_message(answer))
        return messages.UploadState(wanted=True, offset=self.uploads.offset(client, visit), receipt=None)

    async def upload(
        self,
        client: int,
        visit: int,
        head: UpdateHead,
        offset: int,
        length: int,
        pieces: AsyncIterator[bytes],
        *,
        check_in: bool,
    ) -> messages.Received | messages.Partly:
        """Take in an update or a part of one; return its receipt, or how much is there if that is not all.

        Args:
            client: Whose.
            visit: The visit's number.
            head: What the client says of it.
            offset: Where in the body the part begins.
            length: How many bytes the part has.
            pieces: The part, as it comes.
            check_in: Whether the client wants to hear of its next visit along with the receipt.

        Raises:
            Refusal: It is not what it should be; nothing has changed, but the beginning of it may be kept.
        """
        self.accounts.examples.check(client, head.examples)
        plan = self._plan(client, visit)
        is_small = head.bytes <= SMALL and offset == 0 and length == head.bytes
        if plan is None:
            if is_small:
                await self.uploads.read(client, head.bytes, pieces)  # so that the line can stay
            answer = await self.engine.answered(client, visit, head.sha256)
            return messages.Received(receipt=messages.receipt_message(answer), next=None)
        largest = largest_body(self.engine.models.length, plan)
        if head.bytes > largest:
            raise Refusal("too-large", f"an update has at most {largest} bytes here, not {head.bytes}")
        if offset + length > head.bytes:
            raise Refusal("too-large", f"the update was said to have {head.bytes} bytes, but more would come")
        self.engine.check(client, visit, head)
        try:
            if is_small:
                answer, following = await self._small(client, visit, head, plan, pieces, check_in)
            else:
                self.engine.journal.check()
                there = await self.uploads.write(client, visit, offset, head.bytes, pieces)
                if isinstance(there, int):
                    return messages.Partly(offset=there)
                with self.uploads.holding(client):
                    answer, following = await self._large(client, visit, head, plan, there, check_in)
        except OSError as error:
            raise self.engine.disk.refusal(error) from None
        self.metrics.upload_bytes.inc(head.bytes)
        self._note(answer)
        if isinstance(answer, Receipt) and answer.counted and not self.accounts.examples.is_known(client):
            self.accounts.declare(client, head.examples)
        return messages.Received(
            receipt=messages.receipt_message(answer), next=self._checked_in(following) if check_in else None
        )

    async def _small(
        self,
        client: int,
        visit: int,
        head: UpdateHead,
        plan: LocalPlan,
        pieces: AsyncIterator[bytes],
        check_in: bool,
    ) -> tuple[Receipt | Unknown, Assignment | None]:
        body = await self.uploads.read(client, head.bytes, pieces)
        self.engine.journal.check()
        _check_digest(hashlib.sha256(body).hexdigest(), head)
        length = self.engine.models.length
        update = BufferedUpdate(body, length, plan.compression)
        unit = self._norm_unit(head, plan)
        norm = check_body(update, self._max_norm(unit))
        return await self._receive(client, visit, head, update, norm / unit, check_in)

    async def _large(
        self, client: int, visit: int, head: UpdateHead, plan: LocalPlan, whole: Whole, check_in: bool
    ) -> tuple[Receipt | Unknown, Assignment | None]:
        path = whole.path
        try:
            _check_digest(whole.sha256, head)
            update = StoredUpdate(path, 0, head.bytes, self.engine.models.length, plan.compression)
            unit = self._norm_unit(head, plan)
            norm = await asyncio.to_thread(self._bring_in, update, self._max_norm(unit))
            return await self._receive(client, visit, head, update, norm / unit, check_in)
        finally:
            # It was refused, or is of no use: no record of the log refers to it.
            if path not in self.engine.files:
                path.unlink(missing_ok=True)

    def _bring_in(self, update: StoredUpdate, max_norm: float | None) -> float:
        """Check a large update, and bring it to disk; return its norm. The disk goes on with it meanwhile."""
        norm = check_body(update, max_norm)
        sync_file(update.path)
        sync_folder(update.path.parent)
        return norm

    def _norm_unit(self, head: UpdateHead, plan: LocalPlan) -> float:
        return norm_unit(self.engine.coordinator.algorithm.payload, plan, head.steps, head.normaliser)

    def _max_norm(self, unit: float) -> float | None:
        usual = self.engine.norms.limit
        return self._limits.max_update_norm or (usual and usual * unit)

    async def _receive(
        self, client: int, visit: int, head: UpdateHead, update: Body, norm: float, check_in: bool
    ) -> tuple[Receipt | Unknown, Assignment | None]:
        self.accounts.check_client(client)
        answer, following = await self.engine.receive(client, visit, head, update, check_in=check_in)
        if isinstance(answer, Receipt) and answer.counted:
            self.engine.norms.add(client, norm)
        return answer, following

    def _plan(self, client: int, visit: int) -> LocalPlan | None:
        """Return the plan of a visit that is not over."""
        assignment: Assignment | None = self.engine.coordinator.assignment(client)
        return assignment.plan if assignment is not None and assignment.visit == visit else None

    def _note(self, answer: Receipt | Unknown) -> None:
        if isinstance(answer, Unknown):
            return
        self.metrics.updates.labels("counted" if answer.counted else "unused").inc()
        if answer.counted:
            self.metrics.staleness.observe(answer.staleness)

    async def heartbeat(self, client: int, visit: int) -> messages.Beat:
        """Renew a visit's lease."""
        wanted, urgent = await self.engine.heartbeat(client, visit)
        return messages.Beat(wanted=wanted, lease_seconds=self._lease_seconds, urgent=urgent)

    def status(self) -> messages.Status:
        """Return how far the run is."""
        coordinator = self.engine.coordinator
        statistics = coordinator.statistics
        return messages.Status(
            algorithm=coordinator.algorithm.name,
            version=coordinator.algorithm.version,
            finished=self.engine.finished,
            enrolled=len(self.accounts),
            waits_for=self.waits_for(),
            clients=coordinator.clients,
            waiting=len(self.engine.waiting),
            assigned=statistics.assigned,
            counted=statistics.counted,
            unused=statistics.unused,
            lost=statistics.lost,
            mean_staleness=statistics.staleness_sum / max(statistics.counted, 1),
            max_staleness=statistics.staleness_max,
            refused_steps=len(coordinator.algorithm.refused_steps),
            run_seconds=self.engine.now,
            evaluated=self.engine.evaluations.last if self.engine.evaluations else None,
        )

    def metrics_text(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        status = self.status()
        self.metrics.version.set(status.version)
        self.metrics.in_flight.set(status.assigned - status.counted - status.unused - status.lost)
        self.metrics.waiting.set(status.waiting)
        self.metrics.enrolled.set(status.enrolled)
        self.metrics.refused_steps.set(status.refused_steps)
        return self.metrics.text()


def _check_digest(sha256: str, head: UpdateHead) -> None:
    if sha256 != head.sha256:
        raise Refusal("wrong-digest", "the body has another SHA-256 than was announced: upload it again from the start")
