"""What claims are about: one number a run."""

import math

import numpy as np
from numpy.typing import NDArray

from offbeat.experiments.measure import main_measure, target_for
from offbeat.experiments.run_directory import Run
from offbeat.reproduction.file import Quantity

# What it takes to reach a target, as a column of the history or a sum of some.
_COSTS = {
    "seconds_to_target": ("seconds",),
    "updates_to_target": ("counted", "unused", "lost"),
    "versions_to_target": ("version",),
    "bytes_to_target": ("bytes_down", "bytes_up"),
}


def quantity(name: Quantity, run: Run, last_seconds: float | None = None) -> float:
    """Return a quantity of a run; not finite if the run diverged, infinite if a target was never reached.

    Args:
        name: Which one; ``Claim`` says what they are.
        run: The run.
        last_seconds: For ``tail`` and ``swing``, virtual seconds at the end.
    """
    measure = main_measure([run])
    values = run.history[measure.name].astype(np.float64)
    if name == "final":
        return float(values[-1])
    if name == "best":
        return measure.best(values)
    if name in _COSTS:
        target = target_for([run], None)
        assert target is not None
        reached = np.flatnonzero(measure.reached(values, target))
        return float(sum(run.history[column][reached[0]] for column in _COSTS[name])) if len(reached) else math.inf
    last = _last(run, values, last_seconds)
    return float(last.mean() if name == "tail" else last.max() - last.min())


def _last(run: Run, values: NDArray[np.float64], last_seconds: float | None) -> NDArray[np.float64]:
    assert last_seconds is not None
    seconds = run.history["seconds"]
    return values[seconds >= seconds[-1] - last_seconds]
