"""Settings that ``offbeat compare --tune`` searches, by their annotations."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

from annotated_types import Interval
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import Algorithm
from offbeat.algorithms.components.weights import Staleness
from offbeat.config.experiment_file import Experiment
from offbeat.sweeps.edges import edge
from offbeat.sweeps.search_space import Choices, Numbers, Over, Space, Values, contains, problem_at, search_spaces
from offbeat.sweeps.trials import Point

# Who works at once decides what a comparison is about, as the clients do. The others are constants of the papers.
_KEPT = frozenset({"concurrency", "cohort", "epsilon", "compression_exponent", "speed_momentum", "release_every"})
_TIMES = 10.0  # a positive number is searched from a tenth of the file's value to ten times it
_TIMES_OF_COUNTS = 4
_EXPONENTS = (0.0, 0.5, 1.0)  # of polynomial staleness weights


def with_explicit_staleness(table: Mapping[str, Any], experiment: Experiment) -> dict[str, Any]:
    """Return a file's table in which the algorithms' default staleness stands, too."""
    algorithms = {label: dict(own) for label, own in table["algorithms"].items()}
    for label, own in algorithms.items():
        staleness = getattr(experiment.algorithm(label), "staleness", None)
        if isinstance(staleness, Staleness):
            own.setdefault("staleness", {"name": staleness.name, **staleness.parameters})
    return {**table, "algorithms": algorithms}


def tuned_spaces(
    table: Mapping[str, Any], experiment: Experiment, overs: Sequence[Over], labels: Sequence[str], path: Path
) -> dict[str, tuple[Space, Point]]:
    """Return for each label what is searched, and the file's point in it.

    These are the step sizes ``local.lr`` and ``server_lr``, FedProx's ``local.mu``, and the algorithm's settings of
    positive or whole numbers, around the file's values; ``overs`` add keys and replace values.
    """
    own = search_spaces(table, overs, labels, path)
    found: dict[str, tuple[Space, Point]] = {}
    for label in labels:
        defaults = dict(_defaults(experiment, label, own.get(label, {})))
        valid = {key: shrunk for key, values in defaults.items() if (shrunk := _valid(table, label, key, values, path))}
        space = {**valid, **own.get(label, {})}
        found[label] = space, _point(experiment, label, space)
    return found


def edge_to_widen(table: Mapping[str, Any], label: str, key: str, values: Values, best: Any, path: Path) -> str:
    """Return the end at which the best value lies, if valid ones lie beyond.

    It is ``lower``, ``upper`` or empty.
    """
    end = edge(values, best)
    if not end:
        return ""
    if isinstance(values, Choices):
        beyond = best - 1e-3 if end == "lower" else best + 1e-3
    elif values.whole:
        beyond = best - 1 if end == "lower" else best + 1
    else:
        beyond = values.low * (1 - 1e-6) if end == "lower" else values.high * (1 + 1e-6)
    return "" if problem_at(table, label, {key: beyond}, path) else end


def _defaults(experiment: Experiment, label: str, without: Space) -> Iterator[tuple[str, Values]]:
    algorithm, plan = experiment.algorithm(label), experiment.plan(label)
    if "local.lr" not in without and isinstance(plan.lr, float):  # in Python each step may have its own
        yield "local.lr", _around(plan.lr)
    if plan.mu > 0 and "local.mu" not in without:
        yield "local.mu", _around(plan.mu)
    for key, hint in _hints(algorithm).items():
        value = getattr(algorithm, key, None)
        if key in _KEPT or key in without or value is None:
            continue
        if isinstance(value, Staleness):
            if value.name == "polynomial" and "staleness.a" not in without:
                yield "staleness.a", Choices(tuple(sorted({*_EXPONENTS, value.parameters["a"]})))
        elif (interval := _interval(hint)) and (values := _values(value, *interval)):
            yield key, values


def _hints(algorithm: Algorithm) -> dict[str, Any]:
    return {
        key: hint
        for key, hint in get_type_hints(type(algorithm).__init__, include_extras=True).items()
        if key != "return"
    }


def _interval(hint: Any) -> tuple[type, Interval] | None:
    """Return the type and the bounds of an annotated number, which may be optional."""
    for option in (hint, *get_args(hint)):
        kind, *bounds = get_args(option) or (None,)
        interval = next((bound for bound in bounds if isinstance(bound, Interval)), None)
        if kind in (int, float) and interval is not None:
            return kind, interval
    return None


def _values(value: Any, kind: type, bounds: Interval) -> Values | None:
    """Return the numbers around a value that must be above 0; None for others."""
    least: Any = bounds.gt if bounds.ge is None else bounds.ge
    most: Any = bounds.lt if bounds.le is None else bounds.le
    if kind is int and least == 1:
        low, high = max(value // _TIMES_OF_COUNTS, 1), min(value * _TIMES_OF_COUNTS, most)
        return Numbers(low, high, log=True, whole=True) if low < high else None
    if kind is float and (bounds.gt == 0 or 0 < least < 1):
        around = _around(value)
        return Numbers(max(around.low, least), min(around.high, most), log=True)
    return None


def _around(value: float) -> Numbers:
    return Numbers(float(f"{value / _TIMES:.4g}"), float(f"{value * _TIMES:.4g}"), log=True)


def _valid(table: Mapping[str, Any], label: str, key: str, values: Values, path: Path) -> Values | None:
    """Return those of the values that the file may have; None without a choice."""
    if isinstance(values, Choices):
        return values
    middle = math.sqrt(values.low * values.high)
    low, high = (end if not problem_at(table, label, {key: end}, path) else middle for end in (values.low, values.high))
    return Numbers(low, high, values.log, values.whole) if low < high else None


def _point(experiment: Experiment, label: str, space: Space) -> dict[str, Any]:
    """Return the file's values; they must be among those that are searched."""
    resolved = experiment.resolved(label, experiment.seeds[0], str(experiment.data.name))
    point: dict[str, Any] = {}
    for key, values in space.items():
        section = key.partition(".")[0]
        value: Any = resolved if section in ("local", "privacy") else resolved["algorithms"][label]
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if not contains(values, value):
            raise OffbeatError(
                f"--over {key}: the values must include that of the file for {label}, which the first trial has: "
                f"{'none' if value is None else value}"
            )
        point[key] = value
    return point
