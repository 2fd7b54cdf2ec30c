"""The coordinator's values: assignments, receipts, statistics and recorded calls."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from offbeat.algorithms.components import LocalPlan

NOT_RECORDED = frozenset({"client", "version", "plan"})  # parts of an update that its visit determines
REPLAYED_AS_NAMED = frozenset(
    (
        *("present", "absent", "note_speed", "offer", "receive", "renew", "drop", "lapse", "tick", "weigh_clients"),
        *("finish", "free_slot", "note_steps"),
    )
)


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


@dataclass
class Statistics:
    """Numbers of visits so far.

    ``assigned − counted − unused − lost`` visits are open.
    """

    assigned: int = 0
    counted: int = 0
    unused: int = 0  # arrived or offered, but late, unwanted or refused
    lost: int = 0  # have not come: the lease lapsed, the client was given other work, or the run finished
    staleness_sum: int = 0  # over the counted ones
    staleness_max: int = 0


@dataclass(frozen=True)
class RecordedCall:
    """A call that changed a coordinator.

    The same calls make the same state again, bit for bit.
    """

    name: str
    arguments: dict[str, Any]
