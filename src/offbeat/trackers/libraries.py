"""Trackers by name: their libraries, and how runs are written with them."""

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from offbeat_core.errors import OffbeatError

if TYPE_CHECKING:
    from offbeat.runs.directory import Run
    from offbeat.trackers.tracker import Tracker

TrackerName = Literal["wandb", "mlflow", "tensorboard", "trackio"]
TRACKERS: tuple[TrackerName, ...] = get_args(TrackerName)


def check_installed(name: TrackerName) -> None:
    """Raise ``OffbeatError`` if a tracker's library is not installed."""
    if importlib.util.find_spec(name) is None:
        raise OffbeatError(f"{name} is not installed: pip install 'offbeat[{name}]'")


def tracker_maker(name: TrackerName, folder: Path) -> Callable[[], "Tracker"]:
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
    from offbeat.trackers.tracker import TrackedRun, points_of

    tracker = TensorBoardTracker(folder)
    for run in runs:
        with disk_errors(str(folder / f"{run.label}-seed{run.seed}"), "free some space or choose another folder"):
            tracker.begin(TrackedRun("", run.label, run.seed, run.config), None)
            tracker.log(points_of(run.history))
            tracker.end(finished=run.finished)
