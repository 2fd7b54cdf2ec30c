"""What claims are about: one number a run."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from offbeat.report.metrics import Measure, main_measure, measures_of, target_for
from offbeat.reproduction.sections import Claim
from offbeat.runs.directory import Run

_SHARE = 0.9  # of the updates: the mean over some evaluations is less a matter of chance than one of them
# What a run takes, as a column of its history or a sum of some.
_COSTS = {
    "seconds": ("seconds",),
    "updates": ("counted", "unused", "lost"),
    "versions": ("version",),
    "bytes": ("bytes_down", "bytes_up"),
}


def quantity(claim: Claim, run: Run) -> float:
    """Return a claim's quantity of a run; not finite if the run diverged, infinite if a target was never reached.

    After more updates than a run has, it is not a number.
    """
    name, measure = claim.quantity, measure_of(claim, [run])
    values = run.history[measure.name].astype(np.float64)
    if name == "final":
        return float(values[-1])
    if name == "best":
        return measure.best(values)
    if name.endswith("_to_target"):
        return cost_to_target(name.removesuffix("_to_target"), run)
    if name == "after_updates":
        assert claim.updates is not None
        counted = run.history["counted"]
        if counted[-1] < _SHARE * claim.updates:
            return math.nan
        then = values[(counted >= _SHARE * claim.updates) & (counted <= claim.updates)]
        return float(then.mean() if len(then) else np.interp(claim.updates, counted, values))
    assert claim.last_seconds is not None
    seconds = run.history["seconds"]
    last = values[seconds >= seconds[-1] - claim.last_seconds]
    return float(last.mean() if name == "tail" else last.max() - last.min())


def cost(name: str, run: Run) -> NDArray[np.float64]:
    """Return what a run had taken at each evaluation: ``seconds``, ``updates``, ``versions`` or ``bytes``."""
    return np.stack([run.history[column] for column in _COSTS[name]]).sum(axis=0, dtype=np.float64)


def cost_to_target(name: str, run: Run) -> float:
    """Return what it took until the main measure reached ``evaluate.target``; infinite if it never did."""
    measure, target = main_measure([run]), target_for([run])
    assert target is not None
    reached = np.flatnonzero(measure.reached(run.history[measure.name], target))
    return float(cost(name, run)[reached[0]]) if len(reached) else math.inf


def least_cost_to_target(name: str, run: Run) -> float:
    """Return what a run that did not reach the target would have needed at least.

    That is what it had taken by its end; infinite if it diverged, since it would never have reached it.
    """
    return math.inf if has_diverged(run) else float(cost(name, run)[-1])


def has_diverged(run: Run) -> bool:
    """Return whether a run ended since its model was not finite any more."""
    return not math.isfinite(run.history[main_measure([run]).name][-1])


def measure_of(claim: Claim, runs: Sequence[Run]) -> Measure:
    """Return what a claim is about: the measure that it names, or the runs' main one."""
    main = main_measure(runs)
    by_name = {measure.name: measure for measure in measures_of(runs[0])}
    return main if claim.measure is None else by_name[claim.measure]
