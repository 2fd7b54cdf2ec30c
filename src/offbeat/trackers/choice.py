"""The choice of a tracker by its name."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

from offbeat_core.errors import OffbeatError

from offbeat.trackers.names import TrackerName
from offbeat.trackers.tracker import Tracker


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
