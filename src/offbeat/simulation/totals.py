"""The records of a simulation: end, evaluations, ended visits and their totals."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Outcome = Literal["counted", "unused", "lost"]


@dataclass(frozen=True)
class Stop:
    """The end of a simulation: whichever limit is reached first."""

    virtual_seconds: float = math.inf
    versions: float = math.inf
    updates: float = math.inf  # counted ones

    def is_reached(self, version: int, counted: int) -> bool:
        """Return whether the run ends at this version or with this many counted updates."""
        return version >= self.versions or counted >= self.updates


class Evaluation(NamedTuple):
    """The state of a run at one time."""

    seconds: float
    version: int
    counted: int  # visits that have ended, by outcome
    unused: int
    lost: int
    bytes_down: int  # of visits that have begun, all clients together
    bytes_up: int
    displacement: float  # the length of the model's way so far: Σ‖w_{t+1} − w_t‖
    loss: float  # mean on the test set
    metrics: dict[str, float]  # on the test set, by name


class VisitEnded(NamedTuple):
    """A visit that has ended."""

    client: int
    visit: int
    version: int
    staleness: int | None  # None for a lost one
    assigned_seconds: float
    ended_seconds: float
    bytes_down: int
    bytes_up: int
    outcome: Outcome


@dataclass
class Totals:
    """Sums over a run's visits."""

    bytes_down: int = 0  # of visits that have begun
    bytes_up: int = 0  # of visits that have ended, as are the outcomes
    outcomes: dict[str, int] = field(default_factory=lambda: {"counted": 0, "unused": 0, "lost": 0})

    def add(self, ended: VisitEnded) -> None:
        """Add a visit that has ended; its download was added when it began."""
        self.bytes_up += ended.bytes_up
        self.outcomes[ended.outcome] += 1

    def evaluation(
        self, seconds: float, version: int, displacement: float, loss: float, metrics: dict[str, float]
    ) -> Evaluation:
        """Return an evaluation that was made now."""
        counted, unused, lost = (self.outcomes[outcome] for outcome in ("counted", "unused", "lost"))
        down, up = self.bytes_down, self.bytes_up
        return Evaluation(seconds, version, counted, unused, lost, down, up, displacement, loss, metrics)

    def state_dict(self) -> dict[str, Any]:
        """Return the totals."""
        return {"bytes": [self.bytes_down, self.bytes_up], "outcomes": dict(self.outcomes)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from saved totals."""
        self.bytes_down, self.bytes_up = state["bytes"]
        self.outcomes = dict(state["outcomes"])
