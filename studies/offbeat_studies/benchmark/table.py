"""The benchmark's budget and comparisons in the terminal."""

import math
from collections.abc import Collection

from rich import box
from rich.table import Table

from offbeat import units
from offbeat_studies.benchmark.catalogue import BASELINE
from offbeat_studies.benchmark.effects import SHARE, Comparison, Effect, Standing
from offbeat_studies.benchmark.protocol import Plan
from offbeat_studies.benchmark.world import World

COST_NAMES = {"seconds": "virtual time", "client_seconds": "client time", "bytes": "bytes"}


def budget_line(plan: Plan, seconds: float, *, fresh: bool) -> str:
    """Return the number of a plan's runs, and the processor time that they take."""
    runs = len(plan.runs)
    finished = 0 if fresh else runs - plan.left
    trials = runs - len(plan.entries) * len(plan.seeds)
    tuning = f"{trials} trials of half length on seed 0 and " if trials else ""
    done = f", of which {finished} are finished" if finished else ""
    return (
        f"{plan.world.name}: {len(plan.entries)} algorithm{'s' if len(plan.entries) > 1 else ''}, {tuning}"
        f"{runs - trials} runs on seeds {plan.seeds[0]} to {plan.seeds[-1]}{done}; about {units.duration(seconds)} of "
        "processor time in all, by a short run of each"
    )


def comparison_table(world: World, comparison: Comparison, own: Collection[str]) -> Table:
    """Return a row for each algorithm, the best first; ``own`` were run here."""
    columns = [
        f"{column} {COST_NAMES[cost]}"
        for cost in COST_NAMES
        for column in ("Accuracy at equal", f"To {units.level(world.target)}, in")
    ]
    table = Table(
        "", *columns, box=box.SIMPLE, title=f"{world.name}: {world.question}", title_justify="left",
        caption=f"* run here, the others are published. Equal: {units.duration(world.seconds)} of virtual time; "
        f"{units.level(SHARE)} of the client time or bytes of {BASELINE}'s run with the same seed. In brackets: "
        f"against {BASELINE}, with 95 % intervals of pairs of one seed, where the difference is clear after Holm's "
        "correction in this world. ≤, ≥: a bound, since some runs missed the target. –: not every run "
        "spent the budget, or reached the target.",
        caption_justify="left",
    )  # fmt: skip
    for label in by_accuracy(comparison):
        cells: list[str] = []
        for cost in COST_NAMES:
            standing = comparison.standings[label][cost]
            cells += [
                f"{accuracy_text(standing)}{_effect(comparison.find(label, BASELINE, 'accuracy', cost))}",
                f"{target_text(standing, cost)}{_effect(comparison.find(label, BASELINE, 'to_target', cost))}",
            ]
        table.add_row(f"{label}{' *' if label in own else ''}", *cells)
    return table


def by_accuracy(comparison: Comparison) -> list[str]:
    """Return the labels from high to low accuracy at equal virtual time."""
    means = {label: own["seconds"].accuracy for label, own in comparison.standings.items()}
    return sorted(means, key=lambda label: 0.0 if (one := means[label]) is None else -one.mean)


def write_cost(cost: str, value: float) -> str:
    """Write a cost with its unit."""
    return units.size(value) if cost == "bytes" else units.duration(value)


def accuracy_text(standing: Standing) -> str:
    """Write the accuracy at the budget."""
    one = standing.accuracy
    return "–" if one is None else units.percent(one.mean, one.half_width)


def target_text(standing: Standing, cost: str) -> str:
    """Write the cost to the target, or how many runs reached it."""
    if standing.to_target is not None:
        return write_cost(cost, standing.to_target.mean)
    return f"{standing.reached} of {standing.seeds} runs" if standing.reached else "–"


def effect_text(effect: Effect) -> str:
    """Write an effect as ``+7.1 [6.2, 8.0] points`` or ``× 0.61 [0.55, 0.68]``.

    A bound is written as ``≤ × 0.70``.
    """
    if effect.mean is None:
        if effect.size in (0.0, math.inf):
            return f"{'less' if effect.is_better else 'more'} in most runs"
        return f"{'≤' if effect.is_better else '≥'} × {effect.size:.2f}"
    if effect.measure == "accuracy":
        mean, low, high = (f"{100 * value:+.1f}" for value in (effect.mean, effect.low, effect.high))
        return f"{mean} [{low}, {high}] points"
    return f"× {effect.mean:.2f} [{effect.low:.2f}, {effect.high:.2f}]"


def _effect(effect: Effect | None) -> str:
    return f" ({effect_text(effect)})" if effect is not None and effect.is_clear else ""
