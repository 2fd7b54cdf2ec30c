"""Effects: algorithms against the baseline and the best one, seed by seed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from offbeat.statistics.estimates import Estimate, estimate
from offbeat.statistics.hypothesis_tests import Range, bounded_test, holm, paired_t
from offbeat_studies.benchmark.catalogue import BASELINE
from offbeat_studies.benchmark.measures import Curve, accuracy_at, cost_to, has_diverged
from offbeat_studies.benchmark.raw_data import COSTS
from offbeat_studies.benchmark.world import World

Measure = Literal["accuracy", "to_target"]
Budget = Mapping[int, float]  # by seed
Curves = Mapping[str, Sequence[Curve]]
SHARE = 0.75  # of what the baseline spends in a run: the budget of the others in the run of the same seed
_SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Effect:
    """One algorithm against another, over the seeds that both have run.

    Attributes:
        label, than: The two algorithms.
        measure: ``accuracy`` at equal cost, a difference; or ``to_target``, a ratio of costs.
        cost: seconds, client_seconds or bytes.
        mean, low, high: The effect and its 95 % interval. Where a run missed the target, ``mean`` is None, and ``low``
            and ``high`` are the bounds that the runs give: 0 and infinity if they give none.
        is_better: Whether the effect is in favour of the first algorithm.
        p: The two-sided p-value; after ``compare`` by Holm's method, over all effects of the world.
        n: The number of seeds.
    """

    label: str
    than: str
    measure: Measure
    cost: str
    mean: float | None
    low: float
    high: float
    is_better: bool
    p: float
    n: int

    @property
    def is_clear(self) -> bool:
        """Report whether the effect differs from none."""
        return self.p <= _SIGNIFICANT

    @property
    def size(self) -> float:
        """The effect; where a run missed the target the bound on the side of no effect."""
        return self.mean if self.mean is not None else self.high if self.is_better else self.low


@dataclass(frozen=True)
class Standing:
    """An algorithm's own numbers at one cost.

    Attributes:
        accuracy: At the budget; None if a run did not spend it, or without a budget.
        to_target: The cost to the target; None if a run missed it.
        reached: How many runs reached the target.
        diverged: How many runs diverged.
        seeds: The number of runs.
    """

    accuracy: Estimate | None
    to_target: Estimate | None
    reached: int
    diverged: int
    seeds: int


@dataclass(frozen=True)
class Comparison:
    """All comparisons in a world.

    Attributes:
        standings: By label, then by cost.
        best: By cost, the label with the highest mean accuracy at the budget.
        effects: Each algorithm against the baseline and, at equal cost, against the best.
    """

    standings: Mapping[str, Mapping[str, Standing]]
    best: Mapping[str, str]
    effects: Sequence[Effect]

    def find(self, label: str, than: str, measure: Measure, cost: str) -> Effect | None:
        """Return an effect; None if it could not be measured."""
        wanted = (label, than, measure, cost)
        found = (one for one in self.effects if (one.label, one.than, one.measure, one.cost) == wanted)
        return next(found, None)

    def not_worse(self, cost: str) -> list[str]:
        """Return the labels that do not differ clearly from the best, the highest first."""
        best, near = self.best[cost], list[tuple[float, str]]()
        for label in self.standings:
            effect = self.find(label, best, "accuracy", cost)
            if label == BASELINE:  # against which the best one has been compared
                effect = self.find(best, label, "accuracy", cost)
            if effect is not None and not effect.is_clear:
                near.append((-abs(effect.size) if label == BASELINE else effect.size, label))
        return [label for _, label in sorted(near, reverse=True)]


def compare(world: World, curves: Curves) -> Comparison:
    """Return all comparisons of a world's runs."""
    budgets = _budgets(world, curves)
    standings = {
        label: {cost: _standing(own, cost, budgets[cost], world.target) for cost in COSTS}
        for label, own in curves.items()
    }
    at = {cost: _At(curves, cost, budgets[cost], world.target) for cost in COSTS}
    best = {cost: label for cost in COSTS if (label := at[cost].best()) is not None}
    found = [effect for cost in COSTS for label in curves for effect in _effects(at[cost], label, best.get(cost))]
    adjusted = holm([effect.p for effect in found])
    return Comparison(standings, best, [replace(one, p=p) for one, p in zip(found, adjusted, strict=True)])


def _budgets(world: World, curves: Curves) -> dict[str, Budget]:
    """Return the budgets by cost and seed.

    All runs take the same virtual time. Of client time and bytes it is a share of what the baseline spent; a seed whose
    baseline diverged has no budget.
    """
    seeds = {curve.seed for own in curves.values() for curve in own}
    whole = [curve for curve in curves.get(BASELINE, ()) if not has_diverged(curve)]
    budgets: dict[str, Budget] = {"seconds": dict.fromkeys(seeds, world.seconds)}
    for cost in COSTS[1:]:
        budgets[cost] = {curve.seed: SHARE * float(curve.costs[cost][-1]) for curve in whole}
    return budgets


@dataclass(frozen=True)
class _At:
    """All runs, at one cost."""

    curves: Curves
    cost: str
    budget: Budget
    target: float

    def pairs(self, label: str, than: str) -> list[tuple[Curve, Curve]]:
        theirs = {curve.seed: curve for curve in self.curves[than]}
        return [(curve, theirs[curve.seed]) for curve in self.curves[label] if curve.seed in theirs]

    def has_budget(self, curve: Curve) -> bool:
        return curve.seed in self.budget

    def accuracy(self, curve: Curve) -> float:
        return accuracy_at(curve, self.cost, self.budget[curve.seed])

    def best(self) -> str | None:
        """Return the label with the highest mean accuracy.

        It is over the seeds that all have run; None if no algorithm has spent the budget.
        """
        common = set(self.budget).intersection(*({curve.seed for curve in own} for own in self.curves.values()))
        means = {
            label: math.fsum(self.accuracy(curve) for curve in own if curve.seed in common)
            for label, own in self.curves.items()
        }
        known = {label: mean for label, mean in means.items() if math.isfinite(mean)}
        return max(known, key=known.__getitem__) if common and known else None


def _standing(curves: Sequence[Curve], cost: str, budget: Budget, target: float) -> Standing:
    accuracies = [accuracy_at(curve, cost, budget[curve.seed]) for curve in curves if curve.seed in budget]
    costs = [cost_to(curve, cost, target) for curve in curves]
    reached = [one.low for one in costs if one.high < math.inf]
    return Standing(
        estimate(accuracies) if accuracies and all(map(math.isfinite, accuracies)) else None,
        estimate(reached) if len(reached) == len(curves) else None,
        len(reached),
        sum(map(has_diverged, curves)),
        len(curves),
    )


def _effects(at: _At, label: str, best: str | None) -> list[Effect]:
    found: list[Effect | None] = []
    if label != BASELINE and BASELINE in at.curves:
        found += [_accuracy_effect(at, label, BASELINE), _target_effect(at, label, BASELINE)]
    if best is not None and label not in (best, BASELINE) and best != BASELINE:
        found.append(_accuracy_effect(at, label, best))
    return [one for one in found if one is not None]


def _accuracy_effect(at: _At, label: str, than: str) -> Effect | None:
    pairs = [pair for pair in at.pairs(label, than) if at.has_budget(pair[0])]
    differences = [at.accuracy(one) - at.accuracy(other) for one, other in pairs]
    if len(differences) < 2 or not all(map(math.isfinite, differences)):
        return None
    mean, low, high, p = _tested(differences)
    return Effect(label, than, "accuracy", at.cost, mean, low, high, mean > 0, p, len(differences))


def _target_effect(at: _At, label: str, than: str) -> Effect | None:
    pairs = [
        (cost_to(one, at.cost, at.target), cost_to(other, at.cost, at.target)) for one, other in at.pairs(label, than)
    ]
    if any(one.low == 0.0 or other.low == 0.0 for one, other in pairs):  # an untrained model has reached the target
        return None
    logs = [_log_ratio(one, other) for one, other in pairs]
    lows, highs = [one.low for one in logs], [one.high for one in logs]
    if len(logs) < 2 or (max(lows) == -math.inf and min(highs) == math.inf):
        return None
    if lows == highs and all(map(math.isfinite, lows)):
        mean, low, high, p = _tested(lows)
        ends = math.exp(low), math.exp(high)
        return Effect(label, than, "to_target", at.cost, math.exp(mean), *ends, mean < 0, p, len(logs))
    is_longer = bounded_test(logs, Range(0.0, math.inf))
    low = -math.inf if -math.inf in lows else math.fsum(lows) / len(lows)
    high = math.inf if math.inf in highs else math.fsum(highs) / len(highs)
    ends = math.exp(low), math.exp(high)
    return Effect(label, than, "to_target", at.cost, None, *ends, not is_longer.is_for, is_longer.p, len(logs))


def _log_ratio(one: Range, other: Range) -> Range:
    """Return the logarithm of a ratio of costs.

    Costs are infinite where a run diverged.
    """
    low, high = _log(one.low) - _log(other.high), _log(one.high) - _log(other.low)
    return Range(-math.inf, math.inf) if math.isnan(low) or math.isnan(high) else Range(low, high)


def _log(value: float) -> float:
    return math.inf if value == math.inf else math.log(value)


def _tested(differences: Sequence[float]) -> tuple[float, float, float, float]:
    """Return mean, interval and two-sided p-value."""
    try:
        found = paired_t(differences, Range(0.0, math.inf))
    except ValueError:  # all equal: only their sign can be tested
        mean = differences[0]
        return mean, mean, mean, 2 * 0.5 ** len(differences) if mean else 1.0
    assert found.effect is not None and found.low is not None and found.high is not None  # noqa: PT018
    return found.effect, found.low, found.high, found.p
