"""Runs in trackio."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trackio

from offbeat.trackers.tracker import Point, TrackedRun, Tracker


class TrackioTracker(Tracker):
    """A run of trackio's project with the experiment's name.

    The seeds of an algorithm are a group. trackio's own settings hold: ``TRACKIO_DIR``, ``TRACKIO_SERVER_URL`` and so
    on. trackio's step is the row of the history.
    """

    def __init__(self) -> None:
        self._run: Any = None

    def begin(self, run: TrackedRun, key: str | None) -> str:
        """Open the run; its key is its name."""
        # trackio finds runs by name, and another folder may have a run of this one.
        self._run = trackio.init(
            run.experiment,
            name=key or f"{run.name}-{secrets.token_hex(4)}",
            group=run.label,
            config=dict(run.config),
            resume="allow",  # trackio has a run only once something was logged
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        return self._run.name

    def log(self, points: Sequence[Point]) -> None:
        """Add evaluations."""
        for point in points:
            self._run.log(dict(point.values), step=point.row)

    def file(self, path: Path) -> None:
        """Leave the file out: trackio's files belong to a project, not to a run."""

    def end(self, *, finished: bool) -> None:
        """Write what is waiting."""
        self._run.finish()
