"""Judge of ``offbeat advise`` by the benchmark, with each world left out in turn.

``python benchmarks/advice.py`` writes ``src/offbeat/advice/evidence.csv`` from ``docs/benchmark.csv`` and prints two
tables: the choice in each world, and its hits beside "always FedAvg" and so on. Worlds with the same clients are left
out together. A hit is not clearly less accurate than the world's best algorithm (Holm over the world's comparisons). No
run is made.
"""

import csv
import io
from collections.abc import Callable
from pathlib import Path

from offbeat.advice.evidence import KINDS, Row, benchmark_rows, choice_without

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "src" / "offbeat" / "advice" / "evidence.csv"
_SETTINGS_OF_OTHERS = ("fedsgd", "fedprox", "rennala")
_ALPHA = 0.05


def evidence() -> str:
    """Return the content of ``evidence.csv``."""
    with (ROOT / "docs" / "benchmark.csv").open(encoding="utf-8") as file:
        lines = [row for row in csv.DictReader(file) if (row["measure"], row["at_equal"]) == ("accuracy", "seconds")]
    means = {(row["world"], row["algorithm"]): float(row["value"]) for row in lines if not row["than"]}
    effects = {(row["world"], row["algorithm"], row["than"]): row for row in lines if row["than"]}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row.__dataclass_fields__)
    for (world, algorithm), accuracy in sorted(means.items()):
        if algorithm in _SETTINGS_OF_OTHERS:
            continue
        best = max((name for there, name in means if there == world), key=lambda name: means[world, name])
        lead = effects.get((world, algorithm, "fedavg"), {"value": 0, "low": 0, "high": 0})
        beside = effects.get((world, algorithm, best))
        near = beside is None or float(beside["p_holm"]) > _ALPHA
        if algorithm == "fedavg":  # its effect is the best one's lead
            near = algorithm == best or float(effects[world, best, "fedavg"]["p_holm"]) > _ALPHA
        below = means[world, best] - accuracy
        numbers = (f"{float(number):.4f}" for number in (accuracy, lead["value"], lead["low"], lead["high"], below))
        writer.writerow([world, algorithm.replace("-", "_"), *numbers, near])
    return text.getvalue()


def main() -> None:
    """Write the evidence and print both tables."""
    EVIDENCE.write_text(evidence(), encoding="utf-8")
    rows = benchmark_rows()
    of = {(row.world, row.algorithm): row for row in rows}
    print("| world left out | advice | points below the best | hit |\n| --- | --- | ---: | --- |")
    for world in KINDS:
        row = of[world, choice_without(rows, world)]
        print(f"| {world} | {row.algorithm} | {100 * row.below_best:.1f} | {row.is_near_best} |")
    rules: dict[str, Callable[[str], str]] = {
        "advice": lambda world: choice_without(rows, world),
        "always FedAvg": lambda _: "fedavg",
        "always FedBuff": lambda _: "fedbuff",
    }
    print("\n| rule | hits | points below the best, mean | worst |\n| --- | ---: | ---: | ---: |")
    for name, choose in rules.items():
        chosen = [of[world, choose(world)] for world in KINDS]
        below = [100 * row.below_best for row in chosen]
        hits = sum(row.is_near_best for row in chosen)
        print(f"| {name} | {hits} of {len(KINDS)} | {sum(below) / len(below):.1f} | {max(below):.1f} |")


if __name__ == "__main__":
    main()
