"""Errors of a report's finding, in planted worlds with a known truth.

``python benchmarks/planted_worlds.py`` draws results of runs, without training, and puts them through the code that
makes a report's finding. ``--tables`` is the number of comparisons in each world, ``--seed`` the first random seed.
``--real`` trains instead: 20 small comparisons in each of two worlds; see ``planted_runs.py``.

For each world it prints, in percent of the comparisons,

- *false*: with a statement "a is faster (better) than b" that is wrong, or that is right by the step size alone and
  comes without that warning; ± is the standard error,
- *coverage*: in which all simultaneous intervals hold at once,
- *power*: the share of those pairs that differ which are stated,
- *guess right*: of the guesses at how many more seeds would decide between algorithms that differ, the share within a
  factor of two of the number that the true mean and deviation need for a power of 80 %,
- *guess for equals*: with such a guess for algorithms that are equal, which no number of seeds separates.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import planted_runs
from numpy.typing import NDArray

from offbeat.report.finding import finding
from offbeat.report.summary import summarise
from offbeat.report.verdict import verdict
from offbeat.runs.directory import EVENTS, Run
from offbeat.statistics.all_pairs import Pair, seeds_needed

MOST_FALSE, LEAST_COVERAGE = 0.06, 0.94
_MEDIAN = 1000.0  # virtual seconds of an algorithm of speed 1
_EXAMPLES = 360  # of the test set
_TRUTH = 20_000  # seeds that tell the true means of the pairs
_EVENTS = {name: np.zeros(0) for name in EVENTS.names} | {"outcome": np.zeros(0, object)}


@dataclass(frozen=True)
class World:
    """Algorithms with a known truth.

    Attributes:
        speeds: How many times as fast as the first each algorithm is; without a target, how many points better.
        seeds: Of a comparison.
        own: The standard deviation of a run's own effect, on the logarithm of the time, or in points.
        tail: The degrees of freedom of Student's distribution of all effects; infinite: normal.
        shared: The deviation of the effect of a seed, which all its runs share.
        sensitive: How much more of it each algorithm has than the one before.
        every: Seconds between two evaluations.
        horizon: Seconds after which a run ends.
        steps: How far an update of each algorithm moves the model; empty: equally far.
        has_target: False if the accuracy at the end is compared.
        late: The share of runs of the last algorithm that take three times as long.
    """

    name: str
    speeds: tuple[float, ...]
    seeds: int
    own: float = 0.15
    tail: float = math.inf
    shared: float = 0.3
    sensitive: float = 0.0
    every: float = 10.0
    horizon: float = math.inf
    steps: tuple[float, ...] = ()
    has_target: bool = True
    late: float = 0.0

    @property
    def labels(self) -> list[str]:
        """The algorithms' names."""
        return [f"algorithm{place}" for place in range(len(self.speeds))]

    def draw(self, seeds: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Return times, or accuracies at the end, ``(algorithms, seeds)``."""
        number = len(self.speeds)
        shared = self.shared * self._noise((seeds,), generator)
        effects = self.own * self._noise((number, seeds), generator)
        effects += np.outer(1 + self.sensitive * np.arange(number), shared)
        if not self.has_target:
            accuracy = 0.95 + (np.array(self.speeds)[:, None] + effects) / 100
            return np.round(np.clip(accuracy, 0, 1) * _EXAMPLES) / _EXAMPLES
        times = _MEDIAN * np.exp(effects) / np.array(self.speeds)[:, None]
        times[-1, generator.random(seeds) < self.late] *= 3
        return np.ceil(times / self.every) * self.every

    def _noise(self, shape: tuple[int, ...], generator: np.random.Generator) -> NDArray[np.float64]:
        return generator.normal(size=shape) if math.isinf(self.tail) else generator.standard_t(self.tail, size=shape)

    def truth(self) -> dict[tuple[str, str], tuple[float, float]]:
        """Return the mean and the deviation of each pair's difference; less is better.

        The mean is exactly 0 for algorithms of the same speed.
        """
        drawn = self.draw(_TRUTH, np.random.default_rng(1))
        values = np.log(drawn) if self.has_target else -drawn
        last = len(self.speeds) - 1
        alike = [(speed, self.late * (place == last)) for place, speed in enumerate(self.speeds)]
        return {
            (first, second): (
                0.0 if alike[one] == alike[other] else float(np.mean(values[one] - values[other])),
                float(np.std(values[one] - values[other])),
            )
            for (one, first), (other, second) in combinations(enumerate(self.labels), 2)
        }


WORLDS = (
    World("two names of one algorithm", (1, 1), 3),
    World("six names of one, few evaluations", (1,) * 6, 3, own=0.05, shared=0.0, every=50),
    World("four names of one", (1,) * 4, 12),
    World("10 % faster, of three", (1, 1, 1.1), 10, own=0.08),
    World("30 % faster, of two", (1, 1.3), 4),
    World("100 % faster, of four", (1, 1, 1, 2), 5),
    World("faster by step size alone", (1, 2), 5, steps=(0.04, 0.2)),
    World("heavy-tailed effects of seeds", (1, 1, 1, 1.3), 8, own=0.1, tail=3, sensitive=0.5),
    World("four of one, half miss the target", (1,) * 4, 6, horizon=1000),
    World("slow ones miss the target", (1, 1, 1.5, 1.5), 6, horizon=1300),
    World("mix of six", (1, 1, 1.1, 1.3, 2, 2), 7, own=0.2, tail=5, sensitive=0.2, every=100, horizon=1500),
    World("accuracy of five, three of them one", (0, 0, 0, 0.5, 1.5), 6, own=0.5, shared=0.5, has_target=False),
)
BEYOND = World("beyond: one is late in a tenth of its runs", (1, 1), 8, late=0.1)


@dataclass
class Tally:
    """Counts over the comparisons of one world."""

    tables: int = 0
    false: int = 0
    covered: int = 0
    different: int = 0  # pairs
    stated: int = 0
    guesses: int = 0
    right: int = 0
    guesses_for_equals: int = 0

    def line(self, name: str) -> str:
        """Return the line of the table."""
        error = math.sqrt(max(self.false, 1) * (self.tables - self.false)) / self.tables**1.5
        false = f"{100 * self.false / self.tables:.1f} ± {100 * error:.1f}"
        power = f"{100 * self.stated / self.different:.0f}" if self.different else "–"
        right = f"{100 * self.right / self.guesses:.0f} of {self.guesses:,}" if self.guesses else "–"
        covered, equals = 100 * self.covered / self.tables, 100 * self.guesses_for_equals / self.tables
        return f"| {name} | {false} | {covered:.1f} | {power} | {right} | {equals:.0f} |"

    def meets_aims(self) -> bool:
        """Return whether statements are seldom wrong, and intervals mostly hold."""
        return self.false <= MOST_FALSE * self.tables and self.covered >= LEAST_COVERAGE * self.tables


HEADER = (
    "| world | false, % | coverage, % | power, % | guess right, % | guess for equals, % |\n"
    "| --- | ---: | ---: | ---: | ---: | ---: |"
)


def judge(world: World, tables: int, seed: int = 0) -> Tally:
    """Return what the findings of so many comparisons say, against the truth."""
    truth, generator, tally = world.truth(), np.random.default_rng(seed), Tally()
    for _ in range(tables):
        judge_one(runs_of(world, world.draw(world.seeds, generator)), world, truth, tally)
    return tally


def judge_one(
    runs: Sequence[Run], world: World, truth: dict[tuple[str, str], tuple[float, float]], tally: Tally
) -> None:
    """Add one comparison to the tally."""
    rows = summarise(runs)
    tally.tables += 1
    sentence = finding(rows, None)
    if sentence.startswith("No run reached"):
        tally.covered += 1
        return
    found = verdict(rows)
    both = truth | {(second, first): (-mean, deviation) for (first, second), (mean, deviation) in truth.items()}
    statements = list(found.statements())
    is_warned = not world.steps or "Not tuned" in sentence
    tally.false += any(both[pair][0] >= 0 for pair in statements) or bool(statements and not is_warned)
    tally.covered += all(_holds(pair, both[pair.first, pair.second][0]) for pair in found.pairs)
    tally.different += sum(mean != 0 for mean, _ in truth.values())
    tally.stated += sum(both[pair][0] < 0 for pair in statements)
    more = found.more_seeds()
    if more is None:
        return
    mean, deviation = both[found.top[0], found.top[1]]
    if mean == 0:
        tally.guesses_for_equals += 1
        return
    needed = seeds_needed(Pair("", "", mean, 0, 0, deviation, world.seeds), len(found.pairs)) or math.inf
    tally.guesses += 1
    tally.right += needed / 2 <= world.seeds + more <= 2 * needed


def _holds(pair: Pair, mean: float) -> bool:
    return pair.low - 1e-12 <= mean <= pair.high + 1e-12


def runs_of(world: World, drawn: NDArray[np.float64]) -> list[Run]:
    """Return finished runs whose results are those of ``draw``."""
    steps = world.steps or (0.1,) * len(world.speeds)
    return [
        _run(world, label, seed, float(value), step)
        for label, own, step in zip(world.labels, drawn, steps, strict=True)
        for seed, value in enumerate(own)
    ]


def _run(world: World, label: str, seed: int, value: float, step: float) -> Run:
    evaluate: dict[str, object] = {"metrics": ["accuracy"], "better": "higher"}
    if not world.has_target:
        seconds, accuracy = [0.0, _MEDIAN], [36 / _EXAMPLES, value]
    else:
        evaluate["target"] = 0.8
        before = value - world.every
        seconds, accuracy = [0.0, before, value], [0.1, 0.75, 0.8]
        if value > world.horizon:
            seconds, accuracy = [0.0, world.horizon], [0.1, 0.75]
        elif before <= 0:
            seconds, accuracy = [0.0, value], [0.1, 0.8]
    number = len(seconds)
    history = {name: np.zeros(number) for name in ("unused", "lost", "bytes_down", "bytes_up")}
    history |= {"version": np.arange(number), "counted": 100 * np.arange(number), "loss": np.ones(number)}
    history |= {"seconds": np.array(seconds), "accuracy": np.array(accuracy), "displacement": step * history["counted"]}
    config = {"algorithms": {label: {}}, "evaluate": evaluate}
    return Run(Path(f"{label}-seed{seed}"), label, seed, config, history, _EVENTS, 1.0)


def main() -> None:
    """Print the table of the worlds; end with 1 if one misses an aim."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--tables", type=int, default=2000, help="comparisons in each world (default: 2000)")
    parser.add_argument("--seed", type=int, default=0, help="the random seed (default: 0)")
    parser.add_argument("--real", action="store_true", help="train 20 small comparisons in each of two worlds")
    chosen = parser.parse_args()
    if chosen.real:
        planted_runs.main()
        return
    print(HEADER, flush=True)
    missed: list[str] = []
    for world in (*WORLDS, BEYOND):
        tally = judge(world, chosen.tables, chosen.seed)
        print(tally.line(world.name), flush=True)
        if world is not BEYOND and not tally.meets_aims():
            missed.append(world.name)
    found = f"missed in {', '.join(missed)}" if missed else "met"
    print(f"\nAims, false ≤ {MOST_FALSE:.0%} and coverage ≥ {LEAST_COVERAGE:.0%}: {found}.")
    raise SystemExit(bool(missed))


if __name__ == "__main__":
    main()
