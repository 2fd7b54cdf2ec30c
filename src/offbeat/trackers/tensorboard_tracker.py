"""Runs in TensorBoard's event files."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import indent

import tomli_w
from torch.utils.tensorboard.writer import SummaryWriter

from offbeat.trackers.tracker import Point, TrackedRun, Tracker


class TensorBoardTracker(Tracker):
    """A folder with event files: ``folder/LABEL-seedS``.

    The axis "step" is the number of counted updates, the axis "relative" is virtual time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None

    def begin(self, run: TrackedRun, key: str | None) -> str:
        """Open the run's folder.

        Without a key, its configuration is written, and earlier event files are removed.
        """
        path = self._folder / run.name
        old = [] if key else list(path.glob("events.out.tfevents.*"))
        self._writer = SummaryWriter(path)
        if not key:
            # As a block of Markdown. With the virtual time at which the run begins, like its first evaluation.
            self._writer.add_text("config", indent(tomli_w.dumps(run.config), "    "), 0, 0.0)
        for file in old:
            file.unlink()
        return run.name

    def log(self, points: Sequence[Point]) -> None:
        """Add evaluations."""
        assert self._writer is not None
        for point in points:
            for name, value in point.values.items():
                if name != "seconds":  # the axis
                    self._writer.add_scalar(name, value, point.updates, point.values["seconds"])
        self._writer.flush()

    def file(self, path: Path) -> None:
        """Leave the file out: TensorBoard has no files."""

    def end(self, *, finished: bool) -> None:
        """Close the event file."""
        assert self._writer is not None
        self._writer.close()
