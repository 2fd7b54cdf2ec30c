"""Runs in MLflow."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # by default minutes, where no server answers

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from offbeat.trackers.tracker import Point, TrackedRun, Tracker

_METRICS_AT_ONCE = 1000  # limits of MLflow's REST interface
_PARAMETERS_AT_ONCE = 100
_LENGTH = 500  # of a parameter's value, which servers of all versions take


class MlflowTracker(Tracker):
    """A run of MLflow's experiment with the experiment's name.

    MLflow's own settings hold: ``MLFLOW_TRACKING_URI`` and so on. MLflow's step is the number of counted updates, its
    time is virtual time.
    """

    def __init__(self) -> None:
        self._client = MlflowClient()
        self._run = ""
        self._parameters: list[Param] = []

    def begin(self, run: TrackedRun, key: str | None) -> str:
        """Open the run."""
        self._parameters = _parameters(run.config)
        if key is not None:
            self._run = key
            return key
        found = self._client.get_experiment_by_name(run.experiment)
        experiment = self._client.create_experiment(run.experiment) if found is None else found.experiment_id
        tags = {"algorithm": run.label, "seed": str(run.seed)}
        self._run = self._client.create_run(experiment, run_name=run.name, tags=tags).info.run_id
        return self._run

    def log(self, points: Sequence[Point]) -> None:
        """Add evaluations; before the first, the keys of the configuration as parameters."""
        # Not in ``begin``: its key would be lost if they failed. MLflow takes equal parameters twice.
        parameters = self._parameters if points[0].row == 0 else []
        for first in range(0, len(parameters), _PARAMETERS_AT_ONCE):
            self._client.log_batch(self._run, params=parameters[first : first + _PARAMETERS_AT_ONCE])
        metrics = [
            Metric(name, value, round(1000 * point.values["seconds"]), point.updates)
            for point in points
            for name, value in point.values.items()
        ]
        for first in range(0, len(metrics), _METRICS_AT_ONCE):
            self._client.log_batch(self._run, metrics=metrics[first : first + _METRICS_AT_ONCE])

    def file(self, path: Path) -> None:
        """Add an artifact."""
        self._client.log_artifact(self._run, str(path))

    def end(self, *, finished: bool) -> None:
        """Mark a finished run as finished."""
        if finished:
            self._client.set_terminated(self._run)


def _parameters(config: Mapping[str, Any]) -> list[Param]:
    # MLflow refuses other characters in names, such as the + of a label.
    values = {re.sub(r"[^\w. -]", "_", name): str(value)[:_LENGTH] for name, value in _flatten(config)}
    return [Param(name, value) for name, value in values.items()]


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the keys ``section.key`` and values of a configuration."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flatten(cast("Mapping[str, Any]", value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
