"""The protocol of experiment trackers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from offbeat.runs.parquet_chunks import Columns


@dataclass(frozen=True)
class TrackedRun:
    """A run, as a tracker lists it."""

    experiment: str
    label: str
    seed: int
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The label and the seed."""
        return f"{self.label}-seed{self.seed}"


class Point(NamedTuple):
    """The values of one evaluation."""

    row: int  # of the history, from 0
    updates: int  # counted so far
    values: Mapping[str, float]  # by the column of the history, with the virtual time as "seconds"


def points_of(history: Columns, first: int = 0) -> list[Point]:
    """Return the evaluations of a history from row ``first`` on."""
    return [
        Point(row, int(history["counted"][row]), {name: float(column[row]) for name, column in history.items()})
        for row in range(first, len(history["seconds"]))
    ]


class Tracker(Protocol):
    """One run in an experiment tracker.

    Calls may take long, and may raise whatever the tracker's library raises.
    """

    def begin(self, run: TrackedRun, key: str | None) -> str:
        """Open a run, or the earlier one of ``key``; return its key."""
        ...

    def log(self, points: Sequence[Point]) -> None:
        """Add evaluations, in order."""
        ...

    def file(self, path: Path) -> None:
        """Add a file."""
        ...

    def end(self, *, finished: bool) -> None:
        """Close the connection; a run that is not ``finished`` may be opened again."""
        ...
