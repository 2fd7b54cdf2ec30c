"""What claims are about: one number a run."""

import math
from collections.abc import Sequence

import numpy as np

from offbeat.experiments.measure import Measure, main_measure, measures_of, target_for
from offbeat.experiments.run_directory import Run
from offbeat.reproduction.sections import Claim

_SHARE = 0.9  # of the updates: the mean over some evaluations is less a matter of chance than one of them
# What it takes to reach a target, as a column of the history or a sum of some.
_COSTS = {
    "seconds_to_target": ("seconds",),
    "updates_to_target": ("counted", "unused", "lost"),
    "versions_to_target": ("version",),
    "bytes_to_target": ("bytes_down", "bytes_up"),
}


def quantity(claim: Claim, run: Run) -> float:
    """Return a claim's quantity of a run; not finite if the run diverged, infinite if a target was never reached.

    Of more updates than a run has, the mean is not a number.
    """
    name, measure = claim.quantity, measure_of(claim, [run])
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
    if name == "after_updates":
        assert claim.updates is not None
        counted = run.history["counted"]
        then = values[(counted >= _SHARE * claim.updates) & (counted <= claim.updates)]
        return float(then.mean()) if counted[-1] >= _SHARE * claim.updates and len(then) else math.nan
    assert claim.last_seconds is not None
    seconds = run.history["seconds"]
    last = values[seconds >= seconds[-1] - claim.last_seconds]
    return float(last.mean() if name == "tail" else last.max() - last.min())


def measure_of(claim: Claim, runs: Sequence[Run]) -> Measure:
    """Return what a claim is about: the measure that it names, or the runs' main one."""
    main = main_measure(runs)
    by_name = {measure.name: measure for measure in measures_of(runs[0])}
    return main if claim.measure is None else by_name[claim.measure]
