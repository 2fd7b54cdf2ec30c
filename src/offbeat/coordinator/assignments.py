"""Each client's latest visit, and what became of the last one that counted."""

import math
from array import array
from collections.abc import Iterator
from typing import Any

import torch

from offbeat.algorithms.components import LocalPlan
from offbeat.coordinator.calls import Assignment, Receipt, VisitState, plan_from_plain, plan_to_plain

_NONE = -1
_COLUMNS = ("visit", "version", "state", "receipt", "counted_visit", "counted_version", "counted_receipt")


class VisitTable:
    """One row a client, in arrays: a million clients take 50 MB, and nothing for the garbage collector to look at.

    Args:
        clients: Number of clients N.
    """

    def __init__(self, clients: int) -> None:
        self._open: dict[int, Assignment] = {}  # by client, of the visits that are not closed
        # The latest visit: its number, its version, how far it is, and its receipt once it is closed.
        self._visit = array("q", [_NONE]) * clients
        self._version = array("q", [_NONE]) * clients
        self._state = array("b", [VisitState.CLOSED]) * clients
        self._receipt = array("q", [_NONE]) * clients
        # The last one that counted.
        self._counted_visit = array("q", [_NONE]) * clients
        self._counted_version = array("q", [_NONE]) * clients
        self._counted_receipt = array("q", [_NONE]) * clients

    def latest(self, client: int) -> int:
        """Return the number of the client's latest visit, −1 if it never had one."""
        return self._visit[client]

    def counted_visit(self, client: int) -> int:
        """Return the number of the client's last counted visit, −1 if it never had one."""
        return self._counted_visit[client]

    def version(self, client: int) -> int:
        """Return the version that the client was given with its latest visit."""
        return self._version[client]

    def state(self, client: int) -> VisitState:
        """Return how far the client's latest visit is; closed if it never had one."""
        return _STATES[self._state[client]]

    def assignment(self, client: int) -> Assignment | None:
        """Return the client's latest assignment unless it is closed."""
        return self._open.get(client)

    def open_assignments(self) -> Iterator[tuple[Assignment, VisitState]]:
        """Return all assignments that are not closed, and how far they are."""
        return ((assignment, self.state(client)) for client, assignment in self._open.items())

    def receipt(self, client: int, visit: int) -> Receipt | None:
        """Return what became of one of the client's visits, if that is known: its latest, or its last counted one."""
        if self._visit[client] == visit:
            return None if client in self._open else _unpacked(self._receipt[client])
        return _unpacked(self._counted_receipt[client]) if self._counted_visit[client] == visit else None

    def open(
        self, client: int, version: int, plan: LocalPlan, lease_until: float, visit_until: float = math.inf
    ) -> Assignment:
        """Enter new work in place of the client's latest visit, and return it."""
        visit = self._visit[client] + 1
        since = self._counted_version[client]
        assignment = Assignment(
            client, visit, version, plan, lease_until, None if since == _NONE else since, visit_until
        )
        self._open[client] = assignment
        self._visit[client] = visit
        self._version[client] = version
        self._state[client] = VisitState.OPEN
        return assignment

    def renew(self, client: int, lease_until: float) -> None:
        """Let the lease of the client's latest visit, which is not closed, end at another time."""
        self._open[client] = self._open[client]._replace(lease_until=lease_until)

    def lapse(self, client: int) -> None:
        """Note that the lease of the client's latest visit has ended."""
        self._state[client] = VisitState.LAPSED

    def close(self, client: int, receipt: Receipt) -> None:
        """Note what became of the client's latest visit."""
        del self._open[client]
        self._state[client] = VisitState.CLOSED
        packed = _packed(receipt)
        self._receipt[client] = packed
        if receipt.counted:
            self._counted_visit[client] = self._visit[client]
            self._counted_version[client] = self._version[client]
            self._counted_receipt[client] = packed

    def state_dict(self, local: LocalPlan) -> dict[str, Any]:
        """Return all that a restart needs; the run's own plan ``local``, which most visits have, is left out."""
        rows = torch.tensor([list(getattr(self, f"_{column}")) for column in _COLUMNS], dtype=torch.int64)
        (clients,) = (rows[0] != _NONE).nonzero(as_tuple=True)
        assignments = [
            [*assignment[:3], plan_to_plain(assignment.plan, local), *assignment[4:]]
            for assignment in self._open.values()
        ]
        return {"clients": clients, "rows": rows[:, clients], "open": assignments}

    def load_state_dict(self, state: dict[str, Any], local: LocalPlan) -> None:
        """Go on from a saved state."""
        self.__init__(len(self._visit))
        clients = state["clients"].tolist()
        for column, values in zip(_COLUMNS, state["rows"].tolist(), strict=True):
            column = getattr(self, f"_{column}")
            for client, value in zip(clients, values, strict=True):
                column[client] = value
        for client, visit, version, plan, *rest in state["open"]:
            self._open[client] = Assignment(client, visit, version, plan_from_plain(plan, local), *rest)


_STATES = tuple(VisitState)


def _packed(receipt: Receipt) -> int:
    return receipt.staleness << 2 | receipt.counted << 1 | receipt.new_version


def _unpacked(packed: int) -> Receipt:
    return Receipt(bool(packed & 2), packed >> 2, bool(packed & 1))
