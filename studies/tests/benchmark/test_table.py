"""Numbers and effects of the benchmark as text."""

import io
import math

from rich.console import Console

from offbeat.statistics.estimates import estimate
from offbeat_studies.benchmark.effects import Effect, Standing, compare
from offbeat_studies.benchmark.table import accuracy_text, by_accuracy, comparison_table, effect_text, target_text
from studies.tests.benchmark.example_curves import WORLD, a_curve


def effect(measure, mean, low, high, is_better=True):
    return Effect("a", "fedavg", measure, "seconds", mean, low, high, is_better, 0.01, 10)


def test_effects():
    assert effect_text(effect("accuracy", 0.071, 0.062, 0.08)) == "+7.1 [+6.2, +8.0] points"
    assert effect_text(effect("accuracy", -0.02, -0.03, -0.01)) == "-2.0 [-3.0, -1.0] points"
    assert effect_text(effect("to_target", 0.61, 0.55, 0.68)) == "× 0.61 [0.55, 0.68]"
    assert effect_text(effect("to_target", None, 0.0, 0.61)) == "≤ × 0.61"
    assert effect_text(effect("to_target", None, 1.6, math.inf, is_better=False)) == "≥ × 1.60"
    assert effect_text(effect("to_target", None, 0.0, math.inf)) == "less in most runs"
    assert effect_text(effect("to_target", None, 0.0, 2.0, is_better=False)) == "more in most runs"


def test_numbers_of_an_algorithm():
    whole = Standing(estimate([0.8, 0.82]), estimate([30.0, 50.0]), 2, 0, 2)
    assert accuracy_text(whole).startswith("81.0 ± ")
    assert (target_text(whole, "seconds"), target_text(whole, "bytes")) == ("40.0 s", "40 B")
    some = Standing(None, None, 1, 0, 2)
    assert (accuracy_text(some), target_text(some, "bytes")) == ("–", "1 of 2 runs")
    assert target_text(Standing(None, None, 0, 2, 2), "bytes") == "–"


def test_the_table_has_the_best_first_and_only_clear_effects():
    levels = {"fedavg": 0.5, "better": 0.8, "same": 0.5}
    curves = {
        label: [a_curve([0.1, *[level + (-1) ** seed * 0.01 * (label != "same")] * 4], seed) for seed in range(1, 11)]
        for label, level in levels.items()
    }
    comparison = compare(WORLD, curves)
    assert by_accuracy(comparison)[0] == "better"
    text = io.StringIO()
    Console(file=text, width=400).print(comparison_table(WORLD, comparison, ["same"]))
    rows = {row.split()[0]: row for row in text.getvalue().splitlines() if row.split()[:1]}
    assert "(+30.0 [" in rows["better"]
    assert "points" not in rows["same"]
    assert rows["same"].split()[1] == "*"
    assert "*" not in rows["better"]
