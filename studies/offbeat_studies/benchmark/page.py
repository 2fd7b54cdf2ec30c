"""The page ``what_to_use.md`` with its charts, from the benchmark's data.

``make benchmark-docs``, in a checkout.
"""

import csv
import io
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow.compute as pc

from offbeat import units
from offbeat.report.plot_style import png
from offbeat_studies.benchmark import raw_data
from offbeat_studies.benchmark.catalogue import BASELINE
from offbeat_studies.benchmark.chart import chart
from offbeat_studies.benchmark.effects import Comparison, Effect, compare
from offbeat_studies.benchmark.measures import cost_to
from offbeat_studies.benchmark.raw_data import COSTS, WorldData
from offbeat_studies.benchmark.table import COST_NAMES, by_accuracy, effect_text
from offbeat_studies.benchmark.world import World, labels, read_world, world_names

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "results" / "what_to_use.md"
NUMBERS = DOCS / "benchmark.csv"

_MOST_NAMES = 4
# The end of what is allowed, among the values tried.
_LIMITS = {"over_selection": 1.0, "staleness.a": 0.0, "pattern.p": 1.0, "mixing_alpha": 1.0, "window": 1}
_INTRODUCTION = """\
<!-- Made by `make benchmark-docs` from the data in studies/; change benchmark/page.py there, not this page. -->
# What to use when

{answer}

All of it is Fashion-MNIST with a perceptron of 32 hidden units, but for the worlds on CIFAR-10 and SST-2. The benchmark
tunes all algorithms with the same budget and runs them on fresh seeds: [how it is done](../benchmark.md). `offbeat
benchmark` runs it, [benchmark.csv](../benchmark.csv) has all effects.

**How to read it.** Accuracies are compared at equal virtual time, and when an algorithm has spent ¾ of FedAvg's client
time (the seconds that all clients together have worked) or ¾ of its bytes. An algorithm that spends less is not
compared there. Brackets are 95 % confidence intervals. Runs are compared seed by seed. The intervals are not corrected
for multiple comparisons. **A difference is clear if it is significant after Holm's correction over all comparisons in
its world; “not clear” means that the runs do not decide.** “≤” marks an upper bound of a ratio: some runs missed the
target.

**What the intervals leave out.** Thirty trials on one seed are little tuning for an algorithm with many settings. Other
settings could be better, also at equal client time or bytes, since the trials choose by accuracy over virtual time. The
best algorithm is judged by the seeds that chose it, so its lead is overstated, and too few others count as not
separated from it. Nothing is corrected over the worlds.
"""


_TRANSFERRED = """\
The worlds on CIFAR-10 and SST-2 show how far the others carry over. They run six algorithms, chosen beforehand, with
the settings of the smaller worlds. They have five seeds instead of ten, so that only large differences are clear.
"""


def compare_all(worlds: Mapping[str, tuple[World, WorldData | None]]) -> dict[str, Comparison]:
    """Return the comparisons of the worlds that have been run."""
    return {name: compare(world, data.curves) for name, (world, data) in worlds.items() if data is not None}


def page(worlds: Mapping[str, tuple[World, WorldData | None]], compared: Mapping[str, Comparison]) -> str:
    """Return the page of worlds and their comparisons."""
    done = {name: (world, data) for name, (world, data) in worlds.items() if data is not None}
    parts = [_INTRODUCTION.format(answer=_answer({name: world for name, (world, _) in worlds.items()}, compared))]
    if any(world.settings_of for world, _ in done.values()):
        parts.append(_TRANSFERRED)
    for name, comparison in compared.items():
        world, data = done[name]
        parts += _section(world, data, comparison)
        if world.settings_of is not None and world.settings_of in compared:
            parts += _carried_over(world, comparison, compared[world.settings_of])
    parts += _folded_tables(done) if done else []
    if missing := [name for name in worlds if name not in done]:
        commands = " ".join(f"--world {name}" for name in missing)
        parts += [
            "## Not run yet\n",
            *(f"- **{name}**: {worlds[name][0].question}" for name in missing),
            f"\n`offbeat benchmark {commands}` runs them.",
        ]
    return "\n".join(parts) + "\n"


def _answer(worlds: Mapping[str, World], compared: Mapping[str, Comparison]) -> str:
    """Return the decision: a sentence for each world, and the best at each cost."""
    if not compared:
        return (
            f"The benchmark's {len(worlds)} worlds have not been run yet, so this page cannot recommend an algorithm."
        )
    rows = [f"| clients | {' | '.join(f'at equal {name}' for name in COST_NAMES.values())} |", f"| --- |{' --- |' * 3}"]
    rows += [
        f"| [{name}](#{name}) | {' | '.join(_choice(comparison, cost) for cost in COST_NAMES)} |"
        for name, comparison in compared.items()
    ]
    advice = [_advice(worlds[name], comparison) for name, comparison in compared.items()]
    return (
        "In a given time, if your clients are like\n\n" + "\n".join(advice) + "\n\n"
        "If client time or bytes count instead, take the table's other columns. A cell names the algorithm with the "
        "largest\nclear lead in accuracy over FedAvg, and how many others may be as good. “None”: stay with FedAvg.\n"
        f"{len(compared)} of {len(worlds)} worlds are done.\n\n" + "\n".join(rows)
    )


def _advice(world: World, comparison: Comparison) -> str:
    """Return the algorithm to use for clients like a world's, as a sentence."""
    question = re.split("[:;]", world.question)[0].rstrip(".")
    clients = f"- [{world.name}](#{world.name}) ({question[0].lower()}{question[1:]}), "
    best, others = _most_ahead(comparison, "seconds")
    if best is None:
        return f"{clients}stay with **FedAvg**: nothing is clearly more accurate."
    return f"{clients}use **{best.label}**{f'; {others} may be as good' if others else ''}."


def _choice(comparison: Comparison, cost: str) -> str:
    """Return the algorithm that is clearly and farthest ahead of the baseline."""
    best, others = _most_ahead(comparison, cost)
    if best is None:
        return "none"
    return f"**{best.label}**, {effect_text(best)}{f'; {others}' if others else ''}"


def _most_ahead(comparison: Comparison, cost: str) -> tuple[Effect | None, str]:
    """Return the largest clear lead over the baseline, and the number of rivals."""
    best = max(_ahead(comparison, "accuracy", cost), key=lambda effect: effect.size, default=None)
    if best is None:
        return None, ""
    others = {comparison.best[cost], *comparison.not_worse(cost)} - {best.label, BASELINE}
    return best, f"{len(others)} other{'s' if len(others) > 1 else ''}" if others else ""


def _section(world: World, data: WorldData, comparison: Comparison) -> Iterator[str]:
    absent = [label for label in labels() if label not in data.facts and label not in world.without]
    seeds = sorted(set(data.table["seed"].to_pylist()))
    yield f"## `{world.name}`\n"
    yield f"{world.question}\n"
    yield f"![Effects in the world {world.name}](../images/benchmark-{world.name}.png)\n"
    target = units.level(world.target)
    yield f"| at equal | highest mean | not separated from it | lead over FedAvg | cost to {target} |"
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
    yield f"\nSeeds {seeds[0]} to {seeds[-1]} (n = {len(seeds)}). {_baseline(world, data)}"
    yield _target(world, comparison)
    yield from _behind(comparison)
    if at_end := ", ".join(_at_end(world, data)):
        yield f"Tuned to the end of what was tried, so other values may be better: {at_end}."
    if absent:
        yield f"Not run in this world yet: {', '.join(absent)}."
    yield ""


def _baseline(world: World, data: WorldData) -> str:
    """Tell what FedAvg does in a world, since all are compared with it."""
    curves = data.curves[BASELINE]
    reached = sum(math.isfinite(cost_to(curve, "seconds", world.target).high) for curve in curves)
    table = data.table.filter(pc.field("algorithm") == BASELINE)
    versions = table.group_by("seed").aggregate([("version", "max")])["version_max"].to_pylist()
    cohort = data.facts[BASELINE]["settings"]["cohort"]
    return (
        f"FedAvg makes {statistics.median_low(versions)} rounds of up to {cohort} clients in the median run, and "
        f"reaches {units.level(world.target)} in {reached} of {len(curves)} runs."
    )


def _at_end(world: World, data: WorldData) -> Iterator[str]:
    """Name the algorithms with a setting at the end of the tried values.

    Settings at the end of what is allowed do not count.
    """
    limits = {**_LIMITS, **dict.fromkeys(("cohort", "concurrency"), world.table["population"]["clients"])}
    for label, fact in data.facts.items():
        ends = [
            f"{key} {value}"
            for key, value in fact["settings"].items()
            if key in fact["space"]
            and value in _ends([point[key] for _, point in fact["trials"]])
            and value != limits.get(key)
            and not (key == "over_selection" and _at_work(world, data, label) == limits["cohort"])
        ]
        if ends:
            yield f"{label} ({', '.join(ends)})"


def _ends(values: Sequence[float]) -> tuple[float, ...]:
    return (min(values), max(values)) if values else ()


def _at_work(world: World, data: WorldData, label: str) -> int:
    """Return how many clients an algorithm lets work at once, at most."""
    settings, clients = data.facts[label]["settings"], world.table["population"]["clients"]
    if "cohort" in settings:
        return min(math.ceil(round(settings["cohort"] * settings.get("over_selection", 1.0), 9)), clients)
    return settings.get("concurrency", clients)


def _carried_over(world: World, comparison: Comparison, tuned: Comparison) -> Iterator[str]:
    """Return a world's effects beside those in the world of its settings."""
    yield (
        "Accuracy minus FedAvg's at equal virtual time, here and where the settings were chosen, in "
        f"`{world.settings_of}`; bold if clear:\n"
    )
    yield f"| | {world.name} | {world.settings_of} |\n| --- | --- | --- |"
    for label in by_accuracy(comparison):
        if label != BASELINE:
            cells = (_in_bold(one.find(label, BASELINE, "accuracy", "seconds")) for one in (comparison, tuned))
            yield f"| {label} | {' | '.join(cells)} |"
    yield ""


def _in_bold(effect: Effect | None) -> str:
    """Write an effect, in bold if it is clear."""
    text = "not measured" if effect is None else effect_text(effect)
    return f"**{text}**" if effect is not None and effect.is_clear else text


def _words(effect: Effect | None, best: str, cost: str = "") -> str:
    """Write an effect if it is clear."""
    if best == BASELINE:
        return "is FedAvg"
    if effect is None:
        return "not measured"
    if not effect.is_clear:
        return "not clear"
    return effect_text(effect) + (f" of FedAvg's {COST_NAMES[cost]}" if cost else "")


def _target(world: World, comparison: Comparison) -> str:
    """Name the algorithms that reach the target clearly earlier than the baseline."""
    faster = _ahead(comparison, "to_target", "seconds")
    if not faster:
        return f"No algorithm reaches {units.level(world.target)} in clearly less virtual time than FedAvg."
    found = _listed([f"{one.label} ({effect_text(one)})" for one in sorted(faster, key=lambda one: one.size)])
    return f"Clearly less virtual time to {units.level(world.target)} than FedAvg: {found}."


def _behind(comparison: Comparison) -> Iterator[str]:
    """Name the algorithms clearly less accurate than the baseline, worst first."""
    for cost, name in COST_NAMES.items():
        worse = [one for one in _clear(comparison, "accuracy", cost) if not one.is_better]
        if worse:
            found = _listed([f"{one.label} ({effect_text(one)})" for one in sorted(worse, key=lambda one: one.size)])
            yield f"Clearly less accurate than FedAvg at equal {name}: {found}."


def _ahead(comparison: Comparison, measure: str, cost: str) -> list[Effect]:
    """Return the effects of the algorithms that are clearly better than the baseline."""
    return [one for one in _clear(comparison, measure, cost) if one.is_better]


def _clear(comparison: Comparison, measure: str, cost: str) -> list[Effect]:
    """Return the clear effects against the baseline."""
    return [
        effect
        for effect in comparison.effects
        if (effect.measure, effect.cost, effect.than) == (measure, cost, BASELINE) and effect.is_clear
    ]


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{', '.join(names[:_MOST_NAMES])}{more}"


def _folded_tables(done: Mapping[str, tuple[World, WorldData]]) -> Iterator[str]:
    yield (
        "## Clients at work\n\nThe most clients that work at once, as tuned: those that a round assigns, or that an "
        "asynchronous algorithm keeps at work. MIFA, FedCompass, FedLuck and AsyncCommSGD take all. Fewer work where "
        "clients are offline, and where fast ones wait for a round's slowest."
    )
    yield from _by_world(done, lambda world, data, label: f"{_at_work(world, data, label)}")
    yield "## Real time\n\nMean processor seconds of a run, on a busy machine. They are not compared."
    yield from _by_world(done, lambda _, data, label: f"{data.facts[label]['processor_seconds']:.1f}")


def _by_world(
    done: Mapping[str, tuple[World, WorldData]], cell: Callable[[World, WorldData, str], str]
) -> Iterator[str]:
    """Return a folded table with a row for each algorithm and a column for each world."""
    yield '\n<details markdown="1"><summary>All algorithms</summary>\n'
    yield f"| | {' | '.join(done)} |"
    yield f"| --- |{' ---: |' * len(done)}"
    for label in labels():
        if any(label in data.facts for _, data in done.values()):
            cells = (cell(world, data, label) if label in data.facts else "–" for world, data in done.values())
            yield f"| {label} | {' | '.join(cells)} |"
    yield "\n</details>\n"


def numbers(compared: Mapping[str, Comparison]) -> str:
    """Return all effects and the algorithms' own numbers as CSV."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(
        ("world", "algorithm", "than", "measure", "at_equal", "value", "low", "high", "p_holm", "is_bound", "n")
    )
    for name, comparison in compared.items():
        for label in by_accuracy(comparison):
            for cost in COSTS:
                standing = comparison.standings[label][cost]
                for measure, one in (("accuracy", standing.accuracy), ("to_target", standing.to_target)):
                    if one is not None and one.half_width is not None:
                        ends = one.mean - one.half_width, one.mean + one.half_width
                        written = (f"{value:.6g}" for value in (one.mean, *ends))
                        rows.writerow((name, label, "", measure, cost, *written, "", "", one.seeds))
        for one in comparison.effects:
            value = "" if one.mean is None else f"{one.mean:.6g}"
            written = (f"{number:.6g}" for number in (one.low, one.high, one.p))
            rows.writerow((name, one.label, one.than, one.measure, one.cost, value, *written, one.mean is None, one.n))
    return text.getvalue()


def write(folder: Path = DOCS) -> None:
    """Write page, numbers and charts."""
    found = sorted(map(read_world, world_names()), key=lambda world: world.settings_of is not None)
    worlds = {world.name: (world, raw_data.published(world.name)) for world in found}
    compared = compare_all(worlds)
    (folder / PAGE.relative_to(DOCS)).write_text(page(worlds, compared), encoding="utf-8")
    (folder / NUMBERS.relative_to(DOCS)).write_text(numbers(compared), encoding="utf-8")
    for name, comparison in compared.items():
        (folder / "images" / f"benchmark-{name}.png").write_bytes(png(chart(comparison), dpi=110))


if __name__ == "__main__":
    write()
