"""Values that a sweep tries, as ``--over`` says, and the spaces they make."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError, did_you_mean
from offbeat_core.number_checks import is_number

from offbeat.config.algorithm_table import as_inline_toml
from offbeat.config.experiment_file import experiment_of
from offbeat.sweeps.trials import Point, at_point

_FORMS = "write it as KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=A,B,C"


@dataclass(frozen=True)
class Numbers:
    """Numbers from ``low`` to ``high``, both included."""

    low: float
    high: float
    log: bool  # drawn evenly in their logarithm
    whole: bool = False

    @property
    def size(self) -> float:
        """The number of values."""
        return self.high - self.low + 1 if self.whole else math.inf


@dataclass(frozen=True)
class Choices:
    """Values of any kind."""

    values: tuple[Any, ...]

    @property
    def size(self) -> float:
        """The number of values."""
        return len(self.values)


Values = Numbers | Choices


@dataclass(frozen=True)
class Over:
    """One ``--over``: a key of the experiment's file, and the values to try."""

    text: str
    key: str
    values: Values


def parse_over(text: str) -> Over:
    """Return what ``--over TEXT`` says; an ``OffbeatError`` is one line."""
    key, equals, values = text.partition("=")
    key = key.strip()
    if not equals or not all(key.split(".")) or not values.strip():
        raise OffbeatError(f"--over {text}: {_FORMS}")
    ends = [_value(part) for part in values.split(":")]
    if len(ends) in (2, 3) and all(map(is_number, ends[:2])) and ends[2:] in ([], ["log"]):
        return Over(text, key, _range(text, ends[0], ends[1], is_log=len(ends) == 3))
    return Over(text, key, _choices(text, values))


def _range(text: str, low: Any, high: Any, *, is_log: bool) -> Numbers:
    if not (math.isfinite(low) and math.isfinite(high)):
        raise OffbeatError(f"--over {text}: both ends must be finite numbers")
    if low >= high:
        raise OffbeatError(f"--over {text}: the range is empty: the first number must be below the second")
    if is_log and low <= 0:
        raise OffbeatError(f"--over {text}: with log both ends must be above 0")
    return Numbers(low, high, is_log)


def _choices(text: str, values: str) -> Choices:
    if "\n" in values:
        raise OffbeatError(f"--over {text.splitlines()[0]}: the values must be one line")
    try:
        # As TOML first: a list or a table has commas of its own.
        found: list[Any] = tomllib.loads(f"values = [{values}]")["values"]
    except (ValueError, RecursionError):
        found = [_value(part) for part in values.split(",")]
    if "" in found or len(found) < 2:
        more = "one value is a setting, for --set; " if len(found) == 1 and ":" not in values else ""
        raise OffbeatError(f"--over {text}: {more}{_FORMS}")
    if any(one in found[:place] for place, one in enumerate(found)):
        raise OffbeatError(f"--over {text}: each value must be there once")
    return Choices(tuple(found))


def _value(text: str) -> Any:
    """Return a value in TOML, or else the text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text.strip()


Space = Mapping[str, Values]
"""Values by key, as in a ``Point``."""

_OWN_SECTIONS = ("local", "privacy")  # of which each algorithm may have keys of its own


def search_spaces(
    table: Mapping[str, Any], overs: Sequence[Over], labels: Sequence[str], path: Path
) -> dict[str, dict[str, Values]]:
    """Return the space of each label that an ``--over`` concerns.

    ``local.KEY`` and ``privacy.KEY`` are tried for each algorithm, except one that has an ``--over`` of its own for
    this key. Every end of a range and every choice must be valid.
    """
    keys = [over.key for over in overs]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise OffbeatError(f"--over {twice} is there twice: leave one of them out")
    # An algorithm's own ranges come last, and so replace those for all.
    ordered = sorted(overs, key=lambda over: over.key.startswith("algorithms."))
    found: dict[str, dict[str, Over]] = {label: {} for label in labels}
    for over in ordered:
        for label, key in _places(over, labels):
            found[label][key] = over
    return {
        label: {key: _checked(table, label, key, over, path) for key, over in space.items()}
        for label, space in found.items()
        if space
    }


def _places(over: Over, labels: Sequence[str]) -> list[tuple[str, str]]:
    """Return the labels and their keys that an ``--over`` names."""
    section, _, rest = over.key.partition(".")
    if section == "algorithms":
        label, _, key = rest.partition(".")
        if label not in labels:
            raise OffbeatError(f"--over {over.text}: algorithms.{label}: {did_you_mean(label, labels)}")
        if not key:
            raise OffbeatError(f"--over {over.text}: name a key of algorithms.{label}")
        return [(label, key)]
    if section not in _OWN_SECTIONS or not rest:
        raise OffbeatError(
            f"--over {over.text}: write algorithms.LABEL.KEY, local.KEY or privacy.KEY; set any other key with --set, "
            "the same for all algorithms"
        )
    return [(label, over.key) for label in labels]


def _checked(table: Mapping[str, Any], label: str, key: str, over: Over, path: Path) -> Values:
    """Check both ends, or all choices; find out whether a range is of whole numbers."""
    values = over.values
    for end in _ends(values):
        if problem := problem_at(table, label, {key: end}, path):
            raise OffbeatError(f"--over {over.text}: {problem}")
    if isinstance(values, Choices) or not (isinstance(values.low, int) and isinstance(values.high, int)):
        return values
    # The ends are whole, but only the setting knows whether it may have fractions.
    return replace(values, whole=bool(problem_at(table, label, {key: values.low + 0.5}, path)))


def problem_at(table: Mapping[str, Any], label: str, point: Point, path: Path) -> str:
    """Return why a point is not valid for a label; empty if it is."""
    try:
        experiment_of({**table, "algorithms": {**table["algorithms"], label: at_point(table, label, point)}}, path)
    except OffbeatError as error:
        return error.lines[0].removeprefix(f"{path}: ")
    return ""


def size_of(space: Space) -> float:
    """Return the number of points."""
    return prod(values.size for values in space.values())


def all_points(space: Space) -> list[dict[str, Any]]:
    """Return all points of a finite space, the last key changing fastest."""
    return [dict(zip(space, point, strict=True)) for point in product(*map(list_values, space.values()))]


def corners(space: Space) -> list[dict[str, Any]]:
    """Return points with all lowest and with all highest values, and with each choice."""
    choices = [len(values.values) for values in space.values() if isinstance(values, Choices)]
    return [
        {key: _ends(values)[: number + 1][-1] for key, values in space.items()} for number in range(max([2, *choices]))
    ]


def as_text(values: Values) -> str:
    """Return values as ``--over`` has them, after the equals sign."""
    if isinstance(values, Choices):
        return ",".join(map(as_inline_toml, values.values))
    return f"{values.low:.6g}:{values.high:.6g}{':log' if values.log else ''}"


def contains(values: Values, value: Any) -> bool:
    """Return whether a value is one of these."""
    if isinstance(values, Choices):
        return value in values.values
    return is_number(value) and values.low <= value <= values.high and not (values.whole and value % 1)


def _ends(values: Values) -> Sequence[Any]:
    return values.values if isinstance(values, Choices) else (values.low, values.high)


def list_values(values: Values) -> Sequence[Any]:
    """Return all values of a choice or of a range of whole numbers."""
    return values.values if isinstance(values, Choices) else range(int(values.low), int(values.high) + 1)
