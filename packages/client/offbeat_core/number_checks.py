"""Checks of single numbers, and values in messages.

A ``ValueError`` names the value and its range.
"""

import re
from math import prod
from numbers import Integral, Real
from typing import Any

LARGEST_COUNT = 2**31 - 1
"""The largest count that a client may report, so that weights made of counts stay far from overflow."""

LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127
"""The largest finite float32; a larger number would turn infinite in a vector."""


def plain_number(value: Any) -> Any:
    """Return Python's number for one of numpy, torch or pandas; others unchanged.

    An array or a tensor of one entry is a number; a masked entry and a time of numpy are not.
    """
    if type(value) in (int, float) or not hasattr(value, "item") or prod(getattr(value, "shape", (0,))) != 1:
        return value
    return value if _is_time(value) or _is_masked(value) else value.item()


def is_number(value: object) -> bool:
    """Return whether a value is a real number; booleans and times are not."""
    if type(value) in (int, float):
        return True
    # A difference of times of numpy says that it is an integer.
    return not isinstance(value, bool) and isinstance(value, Real) and not _is_time(value)


def check_count(name: str, value: Any) -> int:
    """Return an integer as Python's.

    A ``ValueError`` unless it is 1 … ``LARGEST_COUNT``.
    """
    number = plain_number(value)
    if not is_number(number) or not isinstance(number, Integral) or int(number) < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {short(value)}")
    if int(number) > LARGEST_COUNT:
        raise ValueError(f"{name} must be at most {LARGEST_COUNT}, got {short(value)}")
    return int(number)


def check_positive(name: str, value: Any) -> float:
    """Return a number as Python's; a ``ValueError`` unless it is finite and > 0."""
    number = _check_finite(name, value)
    if number <= 0:
        raise ValueError(f"{name} must be greater than 0, got {short(value)}")
    return number


def check_not_negative(name: str, value: Any) -> float:
    """Return a number as Python's; a ``ValueError`` unless it is finite and ≥ 0."""
    number = _check_finite(name, value)
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {short(value)}")
    return number


def _check_finite(name: str, value: Any) -> float:
    """Return a number as Python's; a ``ValueError`` unless it is finite in 32 bits."""
    number = plain_number(value)
    if not is_number(number):
        raise ValueError(f"{name} must be a number, got {short(value)}")
    if not abs(number) <= LARGEST_FLOAT32:
        raise ValueError(f"{name} must be finite in 32 bits, got {short(value)}")
    return number


def _is_time(value: object) -> bool:
    return getattr(getattr(value, "dtype", None), "kind", None) in ("m", "M")


def _is_masked(value: Any) -> bool:
    # By its name, since algorithms do without numpy.
    return any(kind.__name__ == "MaskedArray" for kind in type(value).__mro__) and bool(value.mask.any())


_LONGEST = 80  # characters of a value or a key


def cut(text: str) -> str:
    """Return the text, shortened if it is long."""
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def short(value: object) -> str:
    """Return a value for a message, in one line, shortened if it is long."""
    return cut(re.sub(r"\s*\n\s*", " ", repr(value)))  # an array's has several
