"""Quantities that claims compare: one number for each run."""

import math
from collections.abc import Sequence

import numpy as np

from offbeat.report.metrics import Measure, cost, main_measure, measures_of, target_for
from offbeat.runs.directory import Run
from offbeat_studies.papers.figures.sections import Claim

_SHARE = 0.9  # of the updates: a mean over several evaluations is less noisy than one of them


def quantity(claim: Claim, run: Run) -> float:
    """Return a claim's quantity of a run.

    ``final`` and ``tail`` are not finite if the run diverged; others are of the time before. The cost to a target is
    infinite if that was never reached, and ``after_updates`` is nan if the run has fewer counted updates.
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
        near = values[(counted >= _SHARE * claim.updates) & (counted <= claim.updates)]
        return float(near.mean() if len(near) else np.interp(claim.updates, counted, values))
    if claim.last_share is None:
        assert claim.last_seconds is not None
        seconds = run.history["seconds"]
        last = values[seconds >= seconds[-1] - claim.last_seconds]
    else:
        last = values[round((1 - claim.last_share) * (len(values) - 1)) :]
    return float(last.mean() if name == "tail" else last.max() - last.min())


def cost_to_target(name: str, run: Run) -> float:
    """Return the cost until the main measure reached its target; infinite if never."""
    measure, target = main_measure([run]), target_for([run])
    assert target is not None
    reached = np.flatnonzero(measure.reached(run.history[measure.name], target))
    return float(cost(name, run)[reached[0]]) if len(reached) else math.inf


def least_cost_to_target(name: str, run: Run) -> float:
    """Return the cost of a whole run that did not reach the target: a lower bound.

    It is infinite if the run diverged, since it would never have reached the target.
    """
    return math.inf if has_diverged(run) else float(cost(name, run)[-1])


def has_diverged(run: Run) -> bool:
    """Return whether a run ended because its model was no longer finite."""
    return not math.isfinite(run.history[main_measure([run]).name][-1])


def measure_of(claim: Claim, runs: Sequence[Run]) -> Measure:
    """Return the measure that a claim names, or else the main one of the runs."""
    main = main_measure(runs)
    by_name = {measure.name: measure for measure in measures_of(runs[0])}
    return main if claim.measure is None else by_name[claim.measure]
