"""The leader's part of an upload, which never reads a body."""

import asyncio
import logging
from dataclasses import dataclass

from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import normaliser
from offbeat_core.messages import CompressionMessage
from offbeat_core.serving.console_log import event

from offbeat.algorithms.components import LocalPlan
from offbeat.coordinator import Assignment, Receipt, Unknown
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.engine.engine import Engine
from offbeat.service.internal.answers import BodyCheck
from offbeat.service.refusal import Refusal
from offbeat.service.updates.update_body import Body, BufferedUpdate, StoredUpdate, check_norm, largest_body
from offbeat.service.updates.update_header import Header, ShareHeader, UpdateHeader
from offbeat.service.updates.upload_history import LARGEST_WEIGHTED_NORM, norm_unit

_SOON = {"Retry-After": "1"}
_NORMALISER_FACTOR = 10  # between the client's optimiser and the plan's SGD


@dataclass(frozen=True, slots=True)
class CheckedUpdate:
    """An update whose body a front has checked.

    A small body is ``data``. A large one is durable, in the file of this ``name`` in ``updates/``, here or in the store
    of blobs. ``norm`` is the body's Euclidean norm, None if it must not be known.
    """

    client: int
    visit: int
    header: Header
    norm: float | None
    data: bytes | bytearray = b""
    name: str | None = None
    check_in: bool = False  # whether the client asks for its next visit


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to an update."""

    receipt: Receipt | Unknown
    assignment: Assignment | None = None  # the client's next visit, if it asked for one and there is work
    is_new: bool = True  # False for an update whose visit was over


class UpdateAdmission:
    """Decides about updates.

    ``max_update_norm`` is the largest norm of one; None for 100 times the usual norm, or what a sum can hold.
    """

    def __init__(self, engine: Engine, accounts: Accounts, max_update_norm: float | None) -> None:
        self._engine = engine
        self._accounts = accounts
        self._max_update_norm = max_update_norm

    def check_of(self, assignment: Assignment) -> BodyCheck:
        """Return the check of the body of a visit's update."""
        compression = assignment.plan.compression
        return BodyCheck(
            length=self._engine.models.length,
            compression=compression
            and CompressionMessage(name=compression.name, parameters=dict(compression.parameters)),
            is_masked=self._engine.shares is not None,
            # Whether a private update counts must not depend on its values.
            values=self._engine.shares is None and self._engine.coordinator.participation is None,
        )

    async def permit(self, client: int, visit: int, header: Header) -> BodyCheck | Decision:
        """Return how to check the body of an update, before it arrives.

        If its visit is over, return the decision.
        """
        assignment = await self._fitting_visit(client, visit, header)
        if assignment is None:
            return await self._repeated(client, visit, header)
        self._engine.log_writer.check()
        return self.check_of(assignment)

    async def decide(self, update: CheckedUpdate) -> Decision:
        """Take in an update.

        Raises:
            Refusal: The update is refused; ``lost-memory`` frees the visit's slot.
        """
        try:
            return await self._decide(update)
        except OSError as error:
            raise self._engine.disk.refusal(error) from None
        finally:
            self.delete_unused(update.name)

    def delete_unused(self, name: str | None) -> None:
        """Delete a large update that has no row: it was refused, or does not count."""
        if name is not None and (path := self._engine.updates / name) not in self._engine.calls.update_files:
            path.unlink(missing_ok=True)

    async def _decide(self, update: CheckedUpdate) -> Decision:
        client, header = update.client, update.header
        assignment = await self._fitting_visit(client, update.visit, header)
        if assignment is None:
            return await self._repeated(client, update.visit, header)
        self._engine.log_writer.check()
        body = await self._body(update, assignment.plan)
        norm = None if update.norm is None else self._checked_norm(header, assignment.plan, update.norm)
        self._accounts.check_client(client)
        receipt, following = await self._engine.hand_in(client, update.visit, header, body, check_in=update.check_in)
        if isinstance(receipt, Receipt) and receipt.counted:
            if norm is not None:
                self._engine.history.norms.add(client, norm)
            if isinstance(header, UpdateHeader) and not self._accounts.examples.is_known(client):
                self._accounts.declare(client, header.examples)
        return Decision(receipt, following)

    async def _repeated(self, client: int, visit: int, header: Header) -> Decision:
        return Decision(await self._engine.repeated_receipt(client, visit, header.digest), is_new=False)

    async def _body(self, update: CheckedUpdate, plan: LocalPlan) -> Body:
        header, length = update.header, self._engine.models.length
        is_masked = isinstance(header, ShareHeader)
        if update.name is None:
            return BufferedUpdate(bytearray(update.data), length, plan.compression, header.digest, is_masked)
        path = self._engine.updates / update.name
        if self._engine.shared is not None and not path.exists():
            try:  # from a front on another machine
                await asyncio.to_thread(self._engine.shared.download, f"updates/{update.name}", header.digest, path)
            except OffbeatError as error:
                event("update_broken", logging.WARNING, client=update.client, problem=str(error.__cause__))
                raise Refusal("busy", "the update's file is gone or broken: upload it again", _SOON) from None
        return StoredUpdate(path, header.bytes, length, plan.compression, header.digest, is_masked)

    async def _fitting_visit(self, client: int, visit: int, header: Header) -> Assignment | None:
        """Return the visit that a header fits; None if it is over.

        Raises:
            Refusal: The header does not fit it.
        """
        if isinstance(header, UpdateHeader):
            self._accounts.examples.check(client, header.examples)
        assignment = self._engine.coordinator.visits.assignment(client, visit)
        if assignment is None:
            return None
        self._check_size(header, assignment.plan)
        if header.version != assignment.version:
            raise Refusal("wrong-version", f"the visit began from version {assignment.version}, not {header.version}")
        if isinstance(header, UpdateHeader):
            self._check_update(assignment, header)
            return assignment
        shares = self._engine.shares
        if shares is None:
            raise Refusal(
                "no-share", "updates of this run are not masked: join without --terms, and with another --folder"
            )
        await shares.prepare(assignment.version)
        if self._engine.coordinator.visits.assignment(client, visit) is None:
            return None  # the visit has ended during the wait: its receipt is the answer
        shares.check(assignment, header)
        return assignment

    def _check_size(self, header: Header, plan: LocalPlan) -> None:
        size, length = header.bytes, self._engine.models.length
        if isinstance(header, ShareHeader) and size != 4 * length:
            raise Refusal("wrong-shape", f"a masked update has {4 * length} bytes here, not {size}")
        if size > (largest := largest_body(length, plan.compression)):
            raise Refusal("too-large", f"an update has at most {largest} bytes here, not {size}")

    def _check_update(self, assignment: Assignment, header: UpdateHeader) -> None:
        if self._engine.models.differs(assignment.version, header.model_sha256):
            raise Refusal(
                "no-such-visit",
                f"visit {assignment.visit} began from another model of this version: check in for new work",
            )
        if self._engine.shares is not None:
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

    def _checked_norm(self, header: Header, plan: LocalPlan, norm: float) -> float:
        """Return an update's norm, divided by its unit."""
        assert isinstance(header, UpdateHeader)
        algorithm, usual = self._engine.coordinator.algorithm, self._engine.history.norms.limit
        unit = norm_unit(algorithm.payload, plan, header.steps, header.normaliser)
        limit = LARGEST_WEIGHTED_NORM / (header.examples if algorithm.weighs_by_examples else 1)
        if usual is not None:
            limit = min(limit, usual * unit)
        check_norm(norm, self._max_update_norm or limit)
        return norm / unit
