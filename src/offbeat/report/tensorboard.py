"""Export of runs to TensorBoard."""

from collections.abc import Sequence
from pathlib import Path

from offbeat.report.export import OTHER_FOLDER
from offbeat.runs.directory import Run, disk_errors
from offbeat.trackers.choice import check_installed
from offbeat.trackers.tracker import TrackedRun, points_of


def write_tensorboard(runs: Sequence[Run], folder: Path) -> None:
    """Write or replace an event file for each run: ``folder/LABEL-seedS``."""
    check_installed("tensorboard")
    from offbeat.trackers.tensorboard_tracker import TensorBoardTracker

    tracker = TensorBoardTracker(folder)
    for run in runs:
        with disk_errors(str(folder / f"{run.label}-seed{run.seed}"), OTHER_FOLDER):
            tracker.begin(TrackedRun("", run.label, run.seed, run.config), None)
            tracker.log(points_of(run.history))
            tracker.end(finished=run.finished)
