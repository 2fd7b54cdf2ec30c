"""Experiment trackers: their protocol, their names, and how one is made."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args

from offbeat_core.errors import OffbeatError

if TYPE_CHECKING:
    from offbeat.runs.directory import Run
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


def points_of(history: "Columns", first: int = 0) -> list[Point]:
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


TrackerName = Literal["wandb", "mlflow", "tensorboard", "trackio"]
TRACKERS: tuple[TrackerName, ...] = get_args(TrackerName)


def check_installed(name: TrackerName) -> None:
    """Raise ``OffbeatError`` if a tracker's library is not installed."""
    if importlib.util.find_spec(name) is None:
        raise OffbeatError(f"{name} is not installed: pip install 'offbeat[{name}]'")


def tracker_maker(name: TrackerName, folder: Path) -> Callable[[], Tracker]:
    """Return what makes the tracker of one run; ``folder`` is that of the runs."""
    check_installed(name)
    # Imported where they are needed: each takes seconds, and none has to be installed.
    match name:
        case "wandb":
            from offbeat.trackers.wandb_tracker import WandbTracker

            return lambda: WandbTracker(folder)
        case "mlflow":
            from offbeat.trackers.mlflow_tracker import MlflowTracker

            return MlflowTracker
        case "tensorboard":
            from offbeat.trackers.tensorboard_tracker import TensorBoardTracker

            return lambda: TensorBoardTracker(folder / "tensorboard")
        case "trackio":
            from offbeat.trackers.trackio_tracker import TrackioTracker

            return TrackioTracker


def write_tensorboard(runs: Sequence["Run"], folder: Path) -> None:
    """Write or replace an event file for each run: ``folder/LABEL-seedS``."""
    check_installed("tensorboard")
    from offbeat.runs.directory import disk_errors
    from offbeat.trackers.tensorboard_tracker import TensorBoardTracker

    tracker = TensorBoardTracker(folder)
    for run in runs:
        with disk_errors(str(folder / f"{run.label}-seed{run.seed}"), "free some space or choose another folder"):
            tracker.begin(TrackedRun("", run.label, run.seed, run.config), None)
            tracker.log(points_of(run.history))
            tracker.end(finished=run.finished)
