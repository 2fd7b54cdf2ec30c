"""Settings to start from, for the catalogue's algorithms."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from offbeat.algorithms import ALGORITHMS
from offbeat.config.algorithm_table import default_hyper_parameters
from offbeat.config.experiment_file import Experiment
from offbeat.report.population_statistics import PopulationStatistics

_NOT_FEDERATED = ("sequential_sgd",)
_AT_WORK = ("concurrency", "cohort")


def with_starting_points(experiment: Experiment, statistics: PopulationStatistics) -> dict[str, dict[str, Any]]:
    """Return tables of the catalogue's algorithms that the experiment does not have.

    As many clients work as in the experiment's first algorithm that says so, and rounds select as many more. A buffer
    holds a quarter of them. An asynchronous upload moves the model by one over the size of that buffer, in deltas.
    """
    used = {experiment.name_of(label) for label in experiment.algorithms} | set(experiment.algorithms)
    at_work = _at_work(experiment, statistics.clients)
    selection = _first(experiment, "over_selection")
    return {
        name: _starting_point(default_hyper_parameters(kind), name, at_work, selection, statistics)
        for name, kind in ALGORITHMS.items()
        if name not in used and name not in _NOT_FEDERATED
    }


def _at_work(experiment: Experiment, clients: int) -> int:
    number = _first(experiment, *_AT_WORK)
    return min(10 if number is None else int(number), clients)


def _first(experiment: Experiment, *keys: str) -> float | None:
    """Return the first number that one of the experiment's algorithms has for a key."""
    for table in experiment.algorithms.values():
        for key in keys:
            if isinstance(number := table.hyper_parameters.get(key), int | float):
                return number
    return None


def _starting_point(
    defaults: Mapping[str, Any], name: str, at_work: int, selection: float | None, statistics: PopulationStatistics
) -> dict[str, Any]:
    buffer = max(at_work // 4, 1)
    period = float(f"{np.median(statistics.visit_seconds) / 2:.2g}")
    start: dict[str, Any] = {
        "cohort": at_work,
        "concurrency": at_work,
        "buffer_size": buffer,
        "window": buffer,
        "min_clients": buffer,
        "delay_bound": 2 * at_work,
        "period": period,
    }
    if selection is not None:
        start["over_selection"] = float(selection)
    # Those that take a step for each update, or one along the mean of all clients for each.
    if name in ("ace", "fedfa", "ringleader", "ringmaster"):
        start["server_lr"] = round(1 / buffer, 4)
    if name == "fadas":
        del start["delay_bound"]  # in FADAS it changes the step size
    return {key: value for key, value in start.items() if key in defaults}
