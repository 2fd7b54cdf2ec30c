"""Numbers and units as text, for tables and axes.

``half_width`` is that of a confidence interval around the number, in the same unit. ``like`` is a number whose unit is
used instead of the number's own, unless the result would be zero.
"""

import math

# Durations shorter than the first number are written in the unit of the other two.
_DURATIONS = ((60.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h"), (math.inf, 86400.0, "d"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit, in seconds and by name, for an axis from 0 to ``seconds``."""
    if seconds < 180:
        return 1.0, "seconds"
    if seconds < 3 * 3600:
        return 60.0, "minutes"
    if seconds <= 2 * 86400:
        return 3600.0, "hours"
    return 86400.0, "days"


def size_unit(size: float) -> tuple[float, str]:
    """Return the unit for ``size`` bytes, in bytes and by name.

    In this unit the size has one to three digits before the point.
    """
    for unit, name in _BYTES:
        if round(size / unit, 3) >= 1:  # 999.96 kB would be written 1000.0 kB
            return unit, name
    return 1.0, "B"


def percent(share: float, half_width: float | None = None) -> str:
    """Write a share (0 … 1) as ``83.1 %`` or ``83.1 ± 0.4 %``."""
    return f"{100 * share:.1f}{_plus_minus(half_width, 100, 1)} %"


def level(share: float) -> str:
    """Write a chosen share, such as a target, without padding its digits: ``80 %``."""
    return f"{100 * share:.6g} %"


def size(size: float, half_width: float | None = None, like: float | None = None) -> str:
    """Write bytes as ``1.2 GB`` or ``1.2 ± 0.1 GB``."""
    unit, name = size_unit(size)
    if like is not None and round(size / size_unit(like)[0], 1) > 0:
        unit, name = size_unit(like)
    digits = 0 if unit == 1 and not half_width else 1
    return f"{size / unit:,.{digits}f}{_plus_minus(half_width, 1 / unit, digits)} {name}"


def count(number: float, half_width: float | None = None) -> str:
    """Write a count as ``1,250``, or ``12.5 ± 0.7``.

    The second form is for a mean over seeds that differ.
    """
    digits = 1 if half_width and number < 100 else 0
    return f"{number:,.{digits}f}{_plus_minus(half_width, 1, digits)}"


def decimal(number: float, half_width: float | None = None) -> str:
    """Write a number as ``3.2`` or ``3.2 ± 0.1``."""
    return f"{number:.1f}{_plus_minus(half_width, 1, 1)}"


def number(value: float, half_width: float | None = None) -> str:
    """Write a number to three digits: ``0.453 ± 0.012``, ``1,234``, ``4.5e-05``.

    Numbers may be of any size.
    """
    if not math.isfinite(value) or (value and not 1e-3 <= abs(value) < 1e6):
        return f"{value:.3g}" + (f" ± {half_width:.2g}" if half_width else "")
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 3
    return f"{value:,.{digits}f}{_plus_minus(half_width, 1, digits)}"


def factor(ratio: float) -> str:
    """Write a ratio as ``×3.4``; near 1 and below with two digits: ``×1.02``."""
    if ratio >= 99.95:
        return f"×{ratio:,.0f}"
    return f"×{ratio:.2f}" if ratio < 1.095 and ratio != 1 else f"×{ratio:.1f}"


def duration(seconds: float, half_width: float | None = None, like: float | None = None) -> str:
    """Write a duration, such as ``12.3 s`` or ``72.1 ± 3.2 min``.

    Without ``half_width`` longer durations have two units: ``35 min 10 s``, ``1 h 12 min``.

    With ``like`` it always has one unit.
    """
    unit, name = _duration_unit(seconds)
    if like is not None and round(seconds / _duration_unit(like)[0], 1) > 0:
        unit, name = _duration_unit(like)
    spread = _plus_minus(half_width, 1 / unit, 1)
    return f"{seconds / unit:,.1f}{spread} {name}" if spread or like is not None else _in_two_units(seconds)


def _duration_unit(seconds: float) -> tuple[float, str]:
    return next((unit, name) for longest, unit, name in _DURATIONS if seconds < longest)


def _in_two_units(seconds: float) -> str:
    # Rounded to the smaller unit first, so that 59 min 59.7 s is an hour and not 59 min 60 s.
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    if round(seconds) < 3600:
        return _join(round(seconds), 60, "min", "s")
    if round(seconds / 60) < 24 * 60:
        return _join(round(seconds / 60), 60, "h", "min")
    return _join(round(seconds / 3600), 24, "d", "h")


def _join(number: int, ratio: int, large: str, small: str) -> str:
    rest = f" {number % ratio} {small}" if number % ratio else ""
    return f"{number // ratio} {large}{rest}"


def _plus_minus(half_width: float | None, scale: float, digits: int) -> str:
    """Return " ± …"; empty for a half-width of zero, where all seeds agree."""
    if not half_width:
        return ""
    return f" ± {half_width * scale:,.{digits}f}"
