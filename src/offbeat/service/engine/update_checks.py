"""The checks of an update against its visit, by its header and norm."""

from offbeat_core.local_plan import normaliser
from offbeat_core.messages import CompressionMessage

from offbeat.algorithms.components import LocalPlan
from offbeat.coordinator import Assignment
from offbeat.service.accounts.accounts import Accounts
from offbeat.service.engine.engine import Engine
from offbeat.service.internal.answers import BodyCheck
from offbeat.service.refusal import Refusal
from offbeat.service.updates.update_body import check_norm, largest_body
from offbeat.service.updates.update_header import Header, ShareHeader, UpdateHeader
from offbeat.service.updates.upload_history import LARGEST_WEIGHTED_NORM, norm_unit

_NORMALISER_FACTOR = 10  # between the client's optimiser and the plan's SGD


class UpdateChecks:
    """Checks updates, but for their bodies.

    ``max_update_norm`` is the largest norm of one; None for 100 times the usual norm, or what a sum can hold.
    """

    def __init__(self, engine: Engine, accounts: Accounts, max_update_norm: float | None) -> None:
        self._engine = engine
        self._accounts = accounts
        self._max_update_norm = max_update_norm

    def of_body(self, assignment: Assignment) -> BodyCheck:
        """Return the check that a front makes of the body of a visit's update."""
        compression = assignment.plan.compression
        return BodyCheck(
            length=self._engine.models.length,
            compression=compression
            and CompressionMessage(name=compression.name, parameters=dict(compression.parameters)),
            is_masked=self._engine.shares is not None,
            # Whether a private update counts must not depend on its values.
            values=self._engine.shares is None and self._engine.coordinator.participation is None,
        )

    async def fitting_visit(self, client: int, visit: int, header: Header) -> Assignment | None:
        """Return the visit that a header fits; None if it is over.

        Raises:
            Refusal: The header does not fit it.
        """
        if isinstance(header, UpdateHeader):
            self._accounts.examples.check(client, header.examples)
        visits = self._engine.coordinator.visits
        assignment = visits.assignment(client, visit)
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
        if visits.assignment(client, visit) is None:
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

    def relative_norm(self, header: Header, plan: LocalPlan, norm: float) -> float:
        """Return an update's norm, divided by its unit; ``Refusal`` if it is too large."""
        assert isinstance(header, UpdateHeader)
        algorithm, usual = self._engine.coordinator.algorithm, self._engine.history.norms.limit
        unit = norm_unit(algorithm.payload, plan, header.steps, header.normaliser)
        limit = LARGEST_WEIGHTED_NORM / (header.examples if algorithm.weighs_by_examples else 1)
        if usual is not None:
            limit = min(limit, usual * unit)
        check_norm(norm, self._max_update_norm or limit)
        return norm / unit
