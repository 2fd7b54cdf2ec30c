"""Checks of single numbers; a ``ValueError`` names the value and its range."""

from numbers import Integral

LARGEST_COUNT = 2**31 - 1
"""The largest count that a client may report, so that weights made of counts stay far from overflow."""

LARGEST_FLOAT32 = (2 - 2**-23) * 2.0**127
"""The largest finite float32; a larger number would turn infinite in a vector."""


def check_count(name: str, value: int) -> None:
    """Raise ``ValueError`` unless ``value`` is an integer, 1 … ``LARGEST_COUNT``."""
    if (type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral))) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value}")
    if value > LARGEST_COUNT:
        raise ValueError(f"{name} must be at most {LARGEST_COUNT}, got {value}")


def check_positive(name: str, value: float) -> None:
    """Raise ``ValueError`` unless ``value`` is a finite number > 0."""
    _check_finite(name, value)
    if value <= 0:
        raise ValueError(f"{name} must be greater than 0, got {value}")


def check_not_negative(name: str, value: float) -> None:
    """Raise ``ValueError`` unless ``value`` is a finite number ≥ 0."""
    _check_finite(name, value)
    if value < 0:
        raise ValueError(f"{name} must not be negative, got {value}")


def _check_finite(name: str, value: float) -> None:
    if not abs(value) <= LARGEST_FLOAT32:
        raise ValueError(f"{name} must be finite in 32 bits, got {value}")
