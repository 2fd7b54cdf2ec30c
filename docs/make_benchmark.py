"""The page ``docs/results/what_to_use.md`` with its charts, from the benchmark's data.

``make benchmark-docs``
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from offbeat import units
from offbeat.benchmark import raw_data
from offbeat.benchmark.catalogue import BASELINE
from offbeat.benchmark.effects import Comparison, Effect, compare
from offbeat.benchmark.raw_data import COSTS, WorldData
from offbeat.benchmark.table import COST_NAMES, by_accuracy, effect_text
from offbeat.benchmark.world import World, labels, read_world, world_names
from offbeat.report.plot_style import GREY, STYLE, png, tidy

DOCS = Path(__file__).parent
PAGE = DOCS / "results" / "what_to_use.md"
NUMBERS = DOCS / "benchmark.csv"

_MOST_NAMES = 4
_INTRODUCTION = """\
<!-- Made by `make benchmark-docs` from src/offbeat/benchmark/results; change docs/make_benchmark.py, not this page. -->
# What to use when

{answer}

The benchmark tunes all algorithms with the same budget and runs them on fresh seeds: [how it is done](../benchmark.md).
Each is compared at equal virtual time, at equal client time (the seconds that all clients together have worked) and at
equal bytes, both FedAvg's. Brackets hold 95 % intervals of differences or ratios between runs of one seed. **A table
names a difference only if it is clear after Holm's correction over all comparisons in its world; “not clear” means that
the runs do not tell.** “≤” marks an effect that is understated, since some runs missed the target.

One model and one data set stand behind this page, a small perceptron on Fashion-MNIST. Ten random trials are little
tuning for algorithms with many settings, and they choose by accuracy over virtual time: at equal client time or bytes
other settings could be better. The best algorithm is picked from the same seeds that it is judged by, so that its lead
is overstated and the list of those as good too short. Nothing is corrected over the worlds.
"""


def page(worlds: Mapping[str, tuple[World, WorldData | None]]) -> str:
    """Return the page."""
    done = {name: (world, data) for name, (world, data) in worlds.items() if data is not None}
    compared = {name: compare(world, data.curves) for name, (world, data) in done.items()}
    parts = [_INTRODUCTION.format(answer=_answer({name: world for name, (world, _) in worlds.items()}, compared))]
    for name, comparison in compared.items():
        parts += _section(*done[name], comparison)
    parts += ["## Real time", *_real_time(done)] if done else []
    if missing := [name for name in worlds if name not in done]:
        commands = " ".join(f"--world {name}" for name in missing)
        parts += [
            "## Not run yet\n",
            *(f"- **{name}**: {worlds[name][0].question}" for name in missing),
            f"\n`offbeat benchmark {commands}` runs them.",
        ]
    return "\n".join(parts) + "\n"


def _answer(worlds: Mapping[str, World], compared: Mapping[str, Comparison]) -> str:
    """Return the decision table: the best of each world at each cost."""
    if not compared:
        return (
            f"The benchmark's {len(worlds)} worlds have not been run yet, so this page cannot recommend an algorithm."
        )
    rows = [f"| clients | {' | '.join(f'at equal {name}' for name in COST_NAMES.values())} |", f"| --- |{' --- |' * 3}"]
    for name, comparison in compared.items():
        question = re.split("[:;]", worlds[name].question)[0].rstrip(".")
        choices = " | ".join(_choice(comparison, cost) for cost in COST_NAMES)
        rows.append(f"| [{name}](#{name}): {question[0].lower()}{question[1:]} | {choices} |")
    return (
        "Each cell names, of the algorithms that are clearly more accurate than FedAvg, the one with the largest lead, "
        "and how\nmany more are not clearly worse. “none”: no algorithm is clearly more accurate than FedAvg. "
        f"{len(compared)} of {len(worlds)} worlds are done.\n\n" + "\n".join(rows)
    )


def _choice(comparison: Comparison, cost: str) -> str:
    """Return the algorithm that is clearly and farthest ahead of the baseline."""
    best = max(_ahead(comparison, "accuracy", cost), key=lambda effect: effect.mean, default=None)
    if best is None:
        return "none"
    others = {comparison.best[cost], *comparison.not_worse(cost)} - {best.label}
    return f"**{best.label}**, {effect_text(best)}{f'; or {len(others)} more' if others else ''}"


def _section(world: World, data: WorldData, comparison: Comparison) -> Iterator[str]:
    absent = [label for label in labels() if label not in data.facts and label not in world.without]
    seeds = sorted(set(data.table["seed"].to_pylist()))
    yield f"## {world.name.capitalize()}\n"
    yield f"{world.question}\n"
    yield f"![Effects in the world {world.name}](../images/benchmark-{world.name}.png)\n"
    yield f"| at equal | highest mean | maybe as good | over FedAvg there | to {units.level(world.target)} |"
    yield "| --- | --- | --- | --- | --- |"
    for cost, best in comparison.best.items():
        others = comparison.not_worse(cost)
        names = _listed(others)
        accuracy = comparison.standings[best][cost].accuracy
        assert accuracy is not None
        yield (
            f"| {COST_NAMES[cost]} "
            f"| {best}, {units.percent(accuracy.mean, accuracy.half_width)} | {names or 'none'} "
            f"| {_words(comparison.find(best, BASELINE, 'accuracy', cost), best)} "
            f"| {_words(comparison.find(best, BASELINE, 'to_target', cost), best, cost)} |"
        )
    yield f"\nSeeds {seeds[0]} to {seeds[-1]} (n = {len(seeds)}). {_target(world, comparison)}"
    if absent:
        yield f"Not run in this world yet: {', '.join(absent)}."
    yield ""


def _words(effect: Effect | None, best: str, cost: str = "") -> str:
    """Write an effect if it is clear."""
    if best == BASELINE:
        return "is FedAvg"
    if effect is None:
        return "not measured"
    if not effect.is_clear:
        return "not clear"
    return f"{effect_text(effect)}{f' of its {COST_NAMES[cost]}' if cost else ''}"


def _target(world: World, comparison: Comparison) -> str:
    """Name the algorithms that reach the target clearly earlier than the baseline."""
    faster = _ahead(comparison, "to_target", "seconds")
    if not faster:
        return f"No algorithm reaches {units.level(world.target)} in clearly less virtual time than FedAvg."
    found = _listed([f"{one.label} ({effect_text(one)})" for one in sorted(faster, key=lambda one: one.mean)])
    return f"Clearly less virtual time to {units.level(world.target)} than FedAvg: {found}."


def _ahead(comparison: Comparison, measure: str, cost: str) -> list[Effect]:
    """Return the effects of the algorithms that are clearly better than the baseline."""
    return [
        effect
        for effect in comparison.effects
        if (effect.measure, effect.cost, effect.than) == (measure, cost, BASELINE)
        and effect.is_clear
        and effect.is_better
    ]


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def _real_time(done: Mapping[str, tuple[World, WorldData]]) -> Iterator[str]:
    yield "\nMean processor seconds of a run, on a busy machine. They are not compared."
    yield '\n<details markdown="1"><summary>All algorithms</summary>\n'
    yield f"| | {' | '.join(done)} |"
    yield f"| --- |{' ---: |' * len(done)}"
    for label in labels():
        found = [data.facts[label]["processor_seconds"] if label in data.facts else None for _, data in done.values()]
        if any(found):
            yield f"| {label} | {' | '.join('–' if one is None else f'{one:.1f}' for one in found)} |"
    yield "\n</details>\n"


def numbers(worlds: Mapping[str, tuple[World, WorldData | None]]) -> str:
    """Return all effects and the algorithms' own numbers as CSV."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(
        ("world", "algorithm", "than", "measure", "at_equal", "value", "low", "high", "p_holm", "is_bound", "n")
    )
    for name, (world, data) in worlds.items():
        if data is None:
            continue
        comparison = compare(world, data.curves)
        for label in by_accuracy(comparison):
            for cost in COSTS:
                standing = comparison.standings[label][cost]
                for measure, one in (("accuracy", standing.accuracy), ("to_target", standing.to_target)):
                    if one is not None and one.half_width is not None:
                        ends = one.mean - one.half_width, one.mean + one.half_width
                        written = (f"{value:.6g}" for value in (one.mean, *ends))
                        rows.writerow((name, label, "", measure, cost, *written, "", "", one.seeds))
        for one in comparison.effects:
            written = (f"{value:.6g}" for value in (one.mean, one.low, one.high, one.p))
            rows.writerow((name, one.label, one.than, one.measure, one.cost, *written, one.is_bound, one.n))
    return text.getvalue()


@mpl.rc_context(STYLE)
def chart(world: World, comparison: Comparison) -> Figure:
    """Draw each algorithm's accuracy over the baseline's, a panel for each cost."""
    shown = [label for label in reversed(by_accuracy(comparison)) if label != BASELINE]
    figure = Figure(figsize=(9.6, 1.1 + 0.22 * len(shown)), layout="constrained")
    panels = figure.subplots(1, len(COSTS), sharey=True, squeeze=False)[0]
    for axes, cost in zip(panels, COSTS, strict=True):
        tidy(axes)
        axes.axvline(0, color=GREY, linewidth=1)
        for y, label in enumerate(shown):
            effect = comparison.find(label, BASELINE, "accuracy", cost)
            if effect is None:
                axes.text(0, y, " not spent", va="center", color=GREY, fontsize=7.5)
                continue
            colour = GREY if not effect.is_clear else "#0072B2" if effect.is_better else "#D55E00"
            axes.plot([100 * effect.low, 100 * effect.high], [y, y], color=colour, linewidth=1.6)
            axes.plot(100 * effect.mean, y, "o", color=colour, markersize=4.5)
        axes.set_yticks(range(len(shown)), shown)
        axes.set_title(f"at equal {COST_NAMES[cost]}", loc="left")
    panels[1].set_xlabel("accuracy over FedAvg's at equal cost, points; 95 % intervals; grey: not clear")
    return figure


def write(folder: Path = DOCS) -> None:
    """Write page, numbers and charts."""
    worlds = {name: (read_world(name), raw_data.published(name)) for name in world_names()}
    (folder / PAGE.relative_to(DOCS)).write_text(page(worlds), encoding="utf-8")
    (folder / NUMBERS.relative_to(DOCS)).write_text(numbers(worlds), encoding="utf-8")
    for name, (world, data) in worlds.items():
        if data is not None:
            picture = png(chart(world, compare(world, data.curves)), dpi=110)
            (folder / "images" / f"benchmark-{name}.png").write_bytes(picture)


if __name__ == "__main__":
    write()
