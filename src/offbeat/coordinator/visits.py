"""Visits: assignments, receipts, and the table of every client's latest visit."""

import math
from array import array
from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import torch

from offbeat.algorithms.components import LocalPlan
from offbeat.algorithms.components.client_update import check_client
from offbeat.coordinator.visit_plans import VisitPlans, plan_from_plain, plan_to_plain
from offbeat.coordinator.visit_states import VisitCall, VisitState, next_state

_NONE = -1
_OPEN, _LAPSED = VisitState.OPEN, VisitState.LAPSED  # found faster than in their class, millions of times
_ASSIGN = VisitCall.ASSIGN
_COLUMNS = ("visit", "version", "state", "receipt", "counted_visit", "counted_version", "counted_receipt")


class Assignment(NamedTuple):
    """Work for a client: its version, its plan, and the time limit of its slot."""

    client: int
    visit: int  # counted from 0 for each client; names the assignment together with the client
    version: int
    plan: LocalPlan
    lease_until: float  # seconds
    since: int | None  # the version of the client's last counted update, None if there is none
    visit_until: float = math.inf  # seconds; no lease is renewed beyond that


class Receipt(NamedTuple):
    """The answer to an update."""

    counted: bool  # False: it was late or refused; only its slot is free again
    staleness: int  # versions made between its download and its use
    new_version: bool  # it completed a new version


class Unknown:
    """The answer for a closed visit whose receipt is forgotten.

    Receipts before the client's last counted one are forgotten.
    """


class VisitTable:
    """The open visits, and one row for each client.

    The rows lie in arrays, so that a million clients take 50 MB. Each call that changes a visit follows the table in
    ``visit_states``; one that is not allowed raises ``ValueError``, and nothing has changed.

    Args:
        clients: Number of clients N.

    Attributes:
        held_slots: The clients of visits that were closed with their slots kept, in order; to be read only.
    """

    def __init__(self, clients: int) -> None:
        self._open: dict[int, Assignment] = {}  # by client
        self._state = bytearray([VisitState.NEW]) * clients
        self._visit = array("q", [_NONE]) * clients
        self._version = array("q", [_NONE]) * clients
        self._receipt = array("q", [_NONE]) * clients  # of the latest visit, if it is closed
        self._counted_visit = array("q", [_NONE]) * clients
        self._counted_version = array("q", [_NONE]) * clients
        self._counted_receipt = array("q", [_NONE]) * clients
        self.held_slots: dict[int, None] = {}

    def grow(self, clients: int) -> None:
        """Add clients without visits, up to so many in all."""
        more = clients - len(self._visit)
        self._state.extend([VisitState.NEW] * more)
        for name in _COLUMNS:
            if name != "state":
                getattr(self, f"_{name}").extend([_NONE] * more)

    def latest(self, client: int) -> int:
        """Return the number of the client's latest visit, −1 if it never had one."""
        return self._visit[client]

    def version(self, client: int) -> int:
        """Return the version of the client's latest assignment."""
        return self._version[client]

    def state(self, client: int) -> VisitState:
        """Return the state of the client's latest visit."""
        return VisitState(self._state[client])

    def _move(self, client: int, call: VisitCall) -> None:
        self._state[client] = next_state(self._state[client], call)

    def check(self, client: int, call: VisitCall) -> None:
        """Raise ``ValueError`` if a call does not go with the client's latest visit."""
        next_state(self._state[client], call)

    def has_slot(self, client: int) -> bool:
        """Return whether the client has an open visit whose lease has not lapsed."""
        return self._state[client] == _OPEN

    def assignment(self, client: int, visit: int | None = None) -> Assignment | None:
        """Return the assignment of the client's open visit; None if it has none.

        With ``visit``, return None also if another visit is open.
        """
        assignment = self._open.get(client)
        return assignment if visit is None or (assignment is not None and assignment.visit == visit) else None

    def look_up(self, client: int, visit: int) -> Assignment | None:
        """Return the assignment of a visit; None if it is closed.

        Raises:
            ValueError: The client was never given this visit.
        """
        assignment = self.assignment(client, visit)
        if assignment is None:
            check_client(client, len(self._visit))
            if not 0 <= visit <= self._visit[client]:
                raise ValueError(f"client {client} was never given visit {visit}")
        return assignment

    def assignments(self, clients: Iterable[int]) -> list[Assignment]:
        """Return the assignments of open visits, among those of these clients."""
        return [self._open[client] for client in clients if client in self._open]

    def open_assignments(self) -> Collection[Assignment]:
        """Return the assignments of all open visits."""
        return self._open.values()

    def receipt(self, client: int, visit: int) -> Receipt | None:
        """Return the receipt of the client's latest or last counted visit.

        None for any other visit, and for an open one.
        """
        if self._visit[client] == visit:
            return None if client in self._open else _unpacked(self._receipt[client])
        return _unpacked(self._counted_receipt[client]) if self._counted_visit[client] == visit else None

    def remembers(self, client: int, visit: int) -> bool:
        """Return whether the receipt of a closed visit is known.

        Those of visits before the last counted one are not.
        """
        return visit >= self._counted_visit[client]

    def has_counted(self, client: int, visit: int) -> bool:
        """Return whether a visit has counted, as far as its receipt is known."""
        receipt = self.receipt(client, visit)
        return receipt is not None and receipt.counted

    def open(
        self, client: int, version: int, plan: LocalPlan, lease_until: float, visit_until: float = math.inf
    ) -> Assignment:
        """Open a visit in place of the client's latest one, and return its assignment."""
        self._state[client] = next_state(self._state[client], _ASSIGN)
        visit = self._visit[client] + 1
        since = self._counted_version[client]
        assignment = Assignment(
            client, visit, version, plan, lease_until, None if since == _NONE else since, visit_until
        )
        self._open[client] = assignment
        self.held_slots.pop(client, None)
        self._visit[client] = visit
        self._version[client] = version
        return assignment

    def renew(self, client: int, lease_until: float) -> Assignment:
        """Change the end of the open visit's lease; return the new assignment."""
        self._move(client, VisitCall.RENEW)
        renewed = self._open[client] = self._open[client]._replace(lease_until=lease_until)
        return renewed

    def lapse(self, client: int, call: VisitCall) -> None:
        """Let the slot of the client's visit go; the call is ``DROP`` or ``LAPSE``."""
        self._move(client, call)

    def close(self, client: int, receipt: Receipt, call: VisitCall = VisitCall.RECEIVE) -> bool:
        """Close the client's open visit; return whether it had lapsed."""
        before = self._state[client]
        self._state[client] = next_state(before, call)
        del self._open[client]
        packed = _packed(receipt)
        self._receipt[client] = packed
        if receipt.counted:
            self._counted_visit[client] = self._visit[client]
            self._counted_version[client] = self._version[client]
            self._counted_receipt[client] = packed
        return before == _LAPSED

    def finish(self, version: int) -> int:
        """Close all open visits without their updates; return how many had slots.

        These slots are in ``held_slots`` then.

        Args:
            version: The newest version of the model.
        """
        with_slots = dict.fromkeys(client for client in self._open if self.has_slot(client))
        for assignment in list(self._open.values()):
            self.close(assignment.client, Receipt(False, version - assignment.version, False), VisitCall.FINISH)
        self.held_slots |= with_slots
        return len(with_slots)

    def free_slot(self, client: int) -> None:
        """Let a slot go that was kept."""
        self._move(client, VisitCall.FREE_SLOT)
        del self.held_slots[client]

    def return_to(self, client: int, since: int | None) -> None:
        """Let the client's next difference refer to an earlier counted update.

        Its last one is in a sum that could not be opened; the receipt stays.
        """
        self._counted_version[client] = _NONE if since is None else since

    def state_dict(self, plans: VisitPlans) -> dict[str, Any]:
        """Return all that a restart needs, except the plans that ``plans`` returns.

        Most visits have such a plan.
        """
        rows = torch.tensor([list(getattr(self, f"_{name}")) for name in _COLUMNS], dtype=torch.int64)
        (clients,) = (rows[0] != _NONE).nonzero(as_tuple=True)
        assignments = [
            [*one[:3], plan_to_plain(one.plan, plans.plan(one.client, one.version)), *one[4:]]
            for one in self._open.values()
        ]
        return {"clients": clients, "rows": rows[:, clients], "open": assignments, "held": list(self.held_slots)}

    def load_state_dict(self, state: dict[str, Any], plans: VisitPlans) -> None:
        """Resume from a saved state."""
        clients = state["clients"].tolist()
        for name, values in zip(_COLUMNS, state["rows"].tolist(), strict=True):
            is_state = name == "state"
            column = (bytearray([VisitState.NEW]) if is_state else array("q", [_NONE])) * len(self._visit)
            for client, value in zip(clients, values, strict=True):
                column[client] = value
            setattr(self, f"_{name}", column)
        self._open = {}
        for client, visit, version, plan, *rest in state["open"]:
            planned = plan_from_plain(plan, plans.plan(client, version))
            self._open[client] = Assignment(client, visit, version, planned, *rest)
        self.held_slots = dict.fromkeys(state["held"])


def _packed(receipt: Receipt) -> int:
    return receipt.staleness << 2 | receipt.counted << 1 | receipt.new_version


def _unpacked(packed: int) -> Receipt:
    return Receipt(bool(packed & 2), packed >> 2, bool(packed & 1))
