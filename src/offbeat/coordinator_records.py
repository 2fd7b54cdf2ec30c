"""What a coordinator hands out, answers, remembers, counts and records."""

from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, NamedTuple, Self

from offbeat.algorithms.base import Compression, LocalPlan


class Assignment(NamedTuple):
    """Work for a client: from which version, by which plan, and until when its slot is kept for it."""

    client: int
    visit: int  # the client's 0th, 1st, … piece of work; names the assignment together with the client
    version: int
    plan: LocalPlan
    lease_until: float  # seconds
    since: int | None  # the version of the client's last counted update, None if there is none


class Receipt(NamedTuple):
    """What became of an update."""

    counted: bool  # False: it came too late and changed nothing
    staleness: int  # versions made between its download and its use
    new_version: bool  # it completed a new version


class VisitState(IntEnum):
    """How far a visit is."""

    OPEN = 0
    LAPSED = 1  # its lease has ended, but its update may still come
    CLOSED = 2  # its update came, or is not wanted any more


@dataclass(slots=True)
class LatestVisit:
    """A client's latest visit, and what became of the last one that counted."""

    assignment: Assignment
    state: VisitState
    receipt: Receipt | None = None  # of this visit, once it is closed
    counted: tuple[int, int, Receipt] | None = None  # visit, version and receipt of the last counted one

    def to_plain(self, local: LocalPlan) -> dict[str, Any]:
        """Return it as plain values; the run's own plan ``local``, which most visits have, is left out."""
        plan = self.assignment.plan
        return {
            **self.assignment._asdict(),
            "plan": None if plan == local else asdict(plan),
            "state": int(self.state),
            "receipt": tuple(self.receipt) if self.receipt else None,
            "counted": (*self.counted[:2], *self.counted[2]) if self.counted else None,
        }

    @classmethod
    def from_plain(cls, values: dict[str, Any], local: LocalPlan) -> Self:
        """Return what ``to_plain`` was made of."""
        plan: dict[str, Any] | None = values["plan"]
        receipt, counted = values["receipt"], values["counted"]
        fields: dict[str, Any] = {name: values[name] for name in Assignment._fields}
        fields["plan"] = _plan(plan) if plan else local
        return cls(
            Assignment(**fields),
            VisitState(values["state"]),
            Receipt(*receipt) if receipt else None,
            (*counted[:2], Receipt(*counted[2:])) if counted else None,
        )


def _plan(values: dict[str, Any]) -> LocalPlan:
    """Return the plan of which ``asdict`` made this; tuples may have become lists, as they do in JSON."""
    values = dict(values)
    if isinstance(values["lr"], list):
        values["lr"] = tuple(values["lr"])
    if values["compression"]:
        name, parameters = values["compression"].values()
        values["compression"] = Compression(name, tuple((key, value) for key, value in parameters))
    return LocalPlan(**values)


@dataclass
class Statistics:
    """What has happened so far. ``assigned − counted − unused − lost`` visits are open."""

    assigned: int = 0
    counted: int = 0
    unused: int = 0  # came, but too late to count
    lost: int = 0  # have not come: the lease lapsed, or the client was given other work
    staleness_sum: int = 0  # over the counted ones
    staleness_max: int = 0


@dataclass(frozen=True)
class Call:
    """A call that changed a coordinator; the same calls make the same state again, bit for bit."""

    name: str
    arguments: dict[str, Any]
