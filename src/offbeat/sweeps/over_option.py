"""Values of ``--over``: ranges and choices."""

import math
import tomllib
from dataclasses import dataclass
from typing import Any

from offbeat_core.errors import OffbeatError

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
    if len(ends) in (2, 3) and all(_is_number(end) for end in ends[:2]) and ends[2:] in ([], ["log"]):
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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
