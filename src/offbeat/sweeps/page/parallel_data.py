"""Data of the parallel-coordinates charts: an axis a setting, a line a trial."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from scipy.stats import rankdata

from offbeat.config.algorithm_table import as_inline_toml
from offbeat.sweeps.importance import place
from offbeat.sweeps.record import Searched
from offbeat.sweeps.result import value_text
from offbeat.sweeps.search_space import Choices, Values
from offbeat.sweeps.trials import Trial

_FIFTHS = 5  # of the trials by rank, each with its colour
_MOST_TICKS = 9
_LOG_RATIO = 100.0  # of values of the measure, from which on its axis is logarithmic
_DIVERGED = 0.1  # the part of the measure's axis below all others


def parallel_data(searched: Searched, label: str, trials: Sequence[Trial]) -> dict[str, Any]:
    """Return the axes and trials of a label.

    The best values of the measure are on top. A trial has a place on each axis, 0 … 1 from below, a text for each, and
    its fifth, 0 for the best.
    """
    space = searched.spaces[label]
    places, ticks = _measure_axis(searched, trials)
    ranks = rankdata([-trial.score for trial in trials], method="min") - 1
    axes = [{"name": key, "ticks": list(_ticks(values))} for key, values in space.items()]
    return {
        "label": label,
        "axes": [*axes, {"name": searched.measure.replace("_", " "), "ticks": ticks}],
        "trials": [
            {
                "number": trial.number,
                "places": [*(round(place(v, trial.point[key]), 4) for key, v in space.items()), round(own, 4)],
                "texts": [
                    *(setting_text(trial.point[key]) for key in space),
                    value_text(searched, trial.value),
                ],
                "fifth": int(rank * _FIFTHS / len(trials)),
            }
            for trial, own, rank in zip(trials, places, ranks.tolist(), strict=True)
        ],
    }


def setting_text(value: Any) -> str:
    """Return a setting as a reader would write it: ``0.5``, or ``hinge, a = 2``."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return ", ".join([value["name"], *(f"{k} = {as_inline_toml(v)}" for k, v in value.items() if k != "name")])
    return as_inline_toml(value)


def _ticks(values: Values) -> Iterator[dict[str, Any]]:
    if isinstance(values, Choices):
        shown: Sequence[Any] = values.values
    elif values.whole and values.size <= _MOST_TICKS:
        shown = range(int(values.low), int(values.high) + 1)
    else:
        shown = [values.low, *_round_numbers(values.low, values.high, is_log=values.log), values.high]
    for value in shown:
        yield {"at": round(place(values, value), 4), "text": setting_text(value)}


def _round_numbers(low: float, high: float, *, is_log: bool) -> list[float]:
    """Return round numbers well inside a range: powers of ten, or multiples of a step."""
    if is_log:
        first, last = math.floor(math.log10(low)) + 1, math.ceil(math.log10(high)) - 1
        step = max(1, math.ceil((last - first + 1) / (_MOST_TICKS - 2)))
        found = [float(f"1e{power}") for power in range(first, last + 1, step)]
        return [one for one in found if low * 10**0.2 < one < high / 10**0.2]
    step = 10.0 ** math.floor(math.log10((high - low) / 2))
    step *= next(times for times in (5, 2, 1) if (high - low) / (times * step) >= 3 or times == 1)
    near = 0.3 * step
    found = [float(f"{number * step:.6g}") for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [one for one in found if low + near < one < high - near]


def _measure_axis(searched: Searched, trials: Sequence[Trial]) -> tuple[list[float], list[dict[str, Any]]]:
    """Return each trial's place on the measure's axis, and the axis's ticks."""
    finite = sorted((trial.value for trial in trials if math.isfinite(trial.value)), key=abs)
    start = _DIVERGED if len(finite) < len(trials) else 0.0
    ticks = [{"at": 0.0, "text": "diverged"}] if start else []
    if not finite:
        return [0.0] * len(trials), ticks
    low, high = min(finite), max(finite)
    is_log = low > 0 and high > _LOG_RATIO * low

    def where(value: float) -> float:
        if not math.isfinite(value):
            return 0.0
        ends = [math.log(one) if is_log else one for one in (low, high, value)]
        share = (ends[2] - ends[0]) / (ends[1] - ends[0]) if high > low else 1.0
        share = share if searched.better == "higher" or high == low else 1 - share
        return start + (1 - start) * share

    shown = [low, *(_round_numbers(low, high, is_log=is_log) if high > low else []), high] if high > low else [low]
    ticks += [{"at": round(where(value), 4), "text": value_text(searched, value)} for value in shown]
    return [where(trial.value) for trial in trials], ticks
