"""What a coordinator hands out, answers, counts and records."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from offbeat.algorithms.base import LocalPlan


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
