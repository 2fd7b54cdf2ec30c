"""Runs in Weights & Biases."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("WANDB_SILENT", "true")

import wandb

from offbeat.trackers.tracker import Point, TrackedRun, Tracker


class WandbTracker(Tracker):
    """A run of W&B's project with the experiment's name.

    The seeds of an algorithm are a group. W&B's own settings hold: ``WANDB_MODE=offline``, ``WANDB_ENTITY`` and so on.
    ``folder`` is where W&B keeps its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._run: Any = None

    def begin(self, run: TrackedRun, key: str | None) -> str:
        """Open the run; curves are drawn over virtual time."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run = wandb.init(
            project=run.experiment,
            group=run.label,
            name=run.name,
            config=dict(run.config),
            id=key,
            resume="allow",
            dir=self._folder,
            settings=wandb.Settings(console="off", disable_git=True, x_disable_stats=True),
        )
        self._run.define_metric("seconds")
        self._run.define_metric("*", step_metric="seconds")
        return self._run.id

    def log(self, points: Sequence[Point]) -> None:
        """Add evaluations; W&B's step is the row of the history."""
        for point in points:
            self._run.log(dict(point.values), step=point.row)

    def file(self, path: Path) -> None:
        """Add a file of the run's folder."""
        self._run.save(path, base_path=path.parent, policy="now")

    def end(self, *, finished: bool) -> None:
        """Send what is waiting."""
        self._run.finish()
