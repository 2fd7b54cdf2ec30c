"""Reception of updates: they are checked, and handed to the engine."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

from offbeat_core.digests import named_digest, new_digest
from offbeat_core.files import sync_file, sync_folder
from offbeat_core.local_plan import normaliser

from offbeat.algorithms.components import LocalPlan
from offbeat.coordinator import Assignment, Receipt, Unknown
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.engine.engine import Engine
from offbeat.service.refusal import Refusal
from offbeat.service.updates.body_file import FindEntries
from offbeat.service.updates.update_body import (
    Body,
    BufferedUpdate,
    StoredUpdate,
    check_body,
    check_form,
    check_norm,
    find_entries,
    largest_body,
)
from offbeat.service.updates.update_header import Header, ShareHeader, UpdateHeader
from offbeat.service.updates.upload_history import LARGEST_WEIGHTED_NORM, norm_unit
from offbeat.service.updates.uploads import SMALL, CompleteBody, Uploads

_NORMALISER_FACTOR = 10  # between the client's optimiser and the plan's SGD


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """A request that uploads an update or a part of one."""

    client: int
    visit: int
    header: Header
    offset: int  # where in the body the part begins
    length: int  # bytes of the part
    pieces: AsyncIterator[bytes]
    check_in: bool = False  # whether the client asks for its next visit

    @property
    def is_small(self) -> bool:
        """Return whether the whole body comes at once and is to be read into memory."""
        return self.header.bytes <= SMALL and self.offset == 0 and self.length == self.header.bytes


@dataclass(frozen=True, slots=True)
class UploadAnswer:
    """The answer to a complete update."""

    receipt: Receipt | Unknown
    assignment: Assignment | None = None  # the client's next visit, if it asked for one and there is work
    is_new: bool = True  # False for an update whose visit was over


class UpdateReceiver:
    """Receives updates.

    ``max_update_norm`` is the largest norm of one; None for 100 times the usual norm, or what a sum can hold.
    """

    def __init__(self, engine: Engine, uploads: Uploads, accounts: Accounts, max_update_norm: float | None) -> None:
        self._engine = engine
        self._uploads = uploads
        self._accounts = accounts
        self._max_update_norm = max_update_norm

    async def receive(self, request: UploadRequest) -> UploadAnswer | int:
        """Receive an update or a part of one; return its answer, or the bytes so far.

        Raises:
            Refusal: The update is refused; its beginning may be kept, and ``lost-memory`` frees the visit's slot.
        """
        header = request.header
        if isinstance(header, UpdateHeader):
            self._accounts.examples.check(request.client, header.examples)
        assignment = self._engine.coordinator.visits.assignment(request.client)
        if assignment is None or assignment.visit != request.visit:
            if request.is_small:
                # So that the connection can stay open.
                await self._uploads.read(request.client, header.bytes, request.pieces)
            receipt = await self._engine.repeated_receipt(request.client, request.visit, header.digest)
            return UploadAnswer(receipt, is_new=False)
        self._check_size(request, assignment.plan)
        try:
            await self._check_header(assignment, header)
            if request.is_small:
                answer = await self._receive_small(request, assignment.plan)
            else:
                self._engine.log_writer.check()
                body = await self._uploads.write(
                    request.client,
                    request.visit,
                    request.offset,
                    header.bytes,
                    request.pieces,
                    self._entries_finder(header, assignment.plan),
                    new_digest(header.digest_kind),
                )
                if isinstance(body, int):
                    return body
                with self._uploads.undecided(request.client):
                    answer = await self._receive_large(request, assignment.plan, body)
        except OSError as error:
            raise self._engine.disk.refusal(error) from None
        has_counted = isinstance(answer.receipt, Receipt) and answer.receipt.counted
        if isinstance(header, UpdateHeader) and has_counted and not self._accounts.examples.is_known(request.client):
            self._accounts.declare(request.client, header.examples)
        return answer

    def _check_size(self, request: UploadRequest, plan: LocalPlan) -> None:
        size, largest = request.header.bytes, largest_body(self._engine.models.length, plan)
        masked = 4 * self._engine.models.length
        if isinstance(request.header, ShareHeader) and size != masked:
            raise Refusal("wrong-shape", f"a masked update has {masked} bytes here, not {size}")
        if size > largest:
            raise Refusal("too-large", f"an update has at most {largest} bytes here, not {size}")
        if request.offset + request.length > size:
            raise Refusal("too-large", f"the update was said to have {size} bytes, but more would come")

    async def _check_header(self, assignment: Assignment, header: Header) -> None:
        """Refuse a header that does not fit the open visit, before the body arrives."""
        if header.version != assignment.version:
            raise Refusal("wrong-version", f"the visit began from version {assignment.version}, not {header.version}")
        models, shares = self._engine.models, self._engine.shares
        if isinstance(header, ShareHeader):
            if shares is None:
                raise Refusal(
                    "no-share", "updates of this run are not masked: join without --terms, and with another --folder"
                )
            await shares.prepare(assignment.version)
            if self._engine.coordinator.visits.assignment(assignment.client, assignment.visit) is None:
                return  # the visit has ended during the wait: its receipt is the answer
            shares.check(assignment, header)
            return
        if models.differs(assignment.version, header.model_sha256):
            raise Refusal(
                "no-such-visit",
                f"visit {assignment.visit} began from another model of this version: check in for new work",
            )
        if shares is not None:
            raise Refusal("share-needed", "updates of this run are masked: send a share, never a plain update")
        if header.steps > assignment.plan.steps:
            raise Refusal("wrong-plan", f"the plan has {assignment.plan.steps} steps, not {header.steps}")
        usual = normaliser(assignment.plan.prefix(header.steps)) if header.steps else 0.0
        if header.normaliser and not usual / _NORMALISER_FACTOR <= header.normaliser <= usual * _NORMALISER_FACTOR:
            raise Refusal(
                "wrong-plan",
                f"the normaliser of {header.steps} steps of this plan's SGD is {usual:.6g}; allowed are 0, and "
                f"{_NORMALISER_FACTOR} times more or less, not {header.normaliser:.6g}",
            )
        if self._engine.coordinator.algorithm.needs_loss and header.loss is None:
            raise Refusal("no-loss", "this run needs the visit's mean training loss: send loss, a finite number")

    async def _receive_small(self, request: UploadRequest, plan: LocalPlan) -> UploadAnswer:
        body = await self._uploads.read(request.client, request.header.bytes, request.pieces)
        self._engine.log_writer.check()
        digest = new_digest(request.header.digest_kind)(body).hexdigest()
        _check_digest(digest, request.header)
        is_masked = isinstance(request.header, ShareHeader)
        length, digest = self._engine.models.length, request.header.digest
        update = BufferedUpdate(body, length, plan.compression, digest, is_masked)
        return await self._hand_in(request, update, self._check_body(request.header, plan, update))

    async def _receive_large(self, request: UploadRequest, plan: LocalPlan, body: CompleteBody) -> UploadAnswer:
        try:
            _check_digest(body.digest, request.header)
            length, is_masked = self._engine.models.length, isinstance(request.header, ShareHeader)
            update = StoredUpdate(
                body.path, request.header.bytes, length, plan.compression, request.header.digest, is_masked
            )
            norm = await asyncio.to_thread(self._check_and_sync, request.header, plan, update, body.norm)
            if self._engine.shared is not None:
                await self._engine.shared.upload(body.path, f"updates/{body.path.name}")
            return await self._hand_in(request, update, norm)
        finally:
            # Without a row in the log the update was refused or does not count.
            if body.path not in self._engine.calls.update_files:
                body.path.unlink(missing_ok=True)

    def _entries_finder(self, header: Header, plan: LocalPlan) -> FindEntries:
        if isinstance(header, ShareHeader) or plan.compression is not None:
            return lambda _: None
        return partial(find_entries, size=header.bytes, length=self._engine.models.length)

    def _check_body(
        self, header: Header, plan: LocalPlan, update: Body, known_norm: float | None = None
    ) -> float | None:
        """Check an update; return its norm, divided by its unit, or None if it is private.

        Whether a private update counts must not depend on its values. ``known_norm`` is None if the body is to be read.
        """
        if isinstance(header, ShareHeader):
            return None
        if self._engine.coordinator.participation is not None:
            check_form(update)
            return None
        algorithm, usual = self._engine.coordinator.algorithm, self._engine.history.norms.limit
        unit = norm_unit(algorithm.payload, plan, header.steps, header.normaliser)
        limit = LARGEST_WEIGHTED_NORM / (header.examples if algorithm.weighs_by_examples else 1)
        if usual is not None:
            limit = min(limit, usual * unit)
        if known_norm is None:
            return check_body(update, self._max_update_norm or limit) / unit
        check_norm(known_norm, self._max_update_norm or limit)
        return known_norm / unit

    def _check_and_sync(
        self, header: Header, plan: LocalPlan, update: StoredUpdate, known_norm: float | None
    ) -> float | None:
        """Check a large update while the disk writes it; return once it is on disk."""
        norm = self._check_body(header, plan, update, known_norm)
        sync_file(update.path)
        sync_folder(update.path.parent)
        return norm

    async def _hand_in(self, request: UploadRequest, update: Body, norm: float | None) -> UploadAnswer:
        self._accounts.check_client(request.client)
        receipt, assignment = await self._engine.hand_in(
            request.client, request.visit, request.header, update, check_in=request.check_in
        )
        if norm is not None and isinstance(receipt, Receipt) and receipt.counted:
            self._engine.history.norms.add(request.client, norm)
        return UploadAnswer(receipt, assignment)


def _check_digest(digits: str, header: Header) -> None:
    if named_digest(header.digest_kind, digits) != header.digest:
        raise Refusal("wrong-digest", "the body has another digest than was announced: upload it again from the start")
