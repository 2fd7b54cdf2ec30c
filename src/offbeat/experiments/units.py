"""Numbers as people read them; the tables and the axes use the same units."""

import math

# Durations shorter than the first number are written in the unit of the other two.
_DURATIONS = ((60.0, 1.0, "s"), (7200.0, 60.0, "min"), (172800.0, 3600.0, "h"), (math.inf, 86400.0, "d"))
_BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B"))


def time_unit(seconds: float) -> tuple[float, str]:
    """Return the unit, in seconds and by name, in which an axis from 0 to ``seconds`` has handy numbers."""
    if seconds < 180:
        return 1.0, "seconds"
    if seconds < 3 * 3600:
        return 60.0, "minutes"
    if seconds < 4 * 86400:
        return 3600.0, "hours"
    return 86400.0, "days"


def size_unit(size: float) -> tuple[float, str]:
    """Return the unit, in bytes and by name, in which ``size`` bytes have one to three digits before the point."""
    for unit, name in _BYTES:
        if round(size / unit, 3) >= 1:  # 999.96 kB would be written 1000.0 kB
            return unit, name
    return 1.0, "B"


def percent(share: float, deviation: float | None = None) -> str:
    """Write a share (0 … 1) as ``83.1 %`` or ``83.1 ± 0.4 %``."""
    return f"{100 * share:.1f}{_plus_minus(deviation, 100, 1)} %"


def level(share: float) -> str:
    """Write a share that somebody chose, such as a target, with no more digits than it has: ``80 %``."""
    return f"{100 * share:.6g} %"


def size(size: float, deviation: float | None = None) -> str:
    """Write bytes as ``1.2 GB`` or ``1.2 ± 0.1 GB``."""
    unit, name = size_unit(size)
    digits = 0 if unit == 1 and not deviation else 1
    return f"{size / unit:.{digits}f}{_plus_minus(deviation, 1 / unit, digits)} {name}"


def count(number: float, deviation: float | None = None) -> str:
    """Write a count as ``1,250`` or, where it is a mean over seeds that differ, ``12.5 ± 0.7``."""
    digits = 1 if deviation and number < 100 else 0
    return f"{number:,.{digits}f}{_plus_minus(deviation, 1, digits)}"


def decimal(number: float, deviation: float | None = None) -> str:
    """Write a number as ``3.2`` or ``3.2 ± 0.1``."""
    return f"{number:.1f}{_plus_minus(deviation, 1, 1)}"


def factor(ratio: float) -> str:
    """Write a ratio as ``×3.4``; below one, where a tenth is coarse, as ``×0.85``."""
    return f"×{ratio:.1f}" if ratio >= 0.995 else f"×{ratio:.2f}"


def duration(seconds: float, deviation: float | None = None) -> str:
    """Write a duration as ``12.3 s``, ``35 min 10 s``, ``1 h 12 min``, or ``72.1 ± 3.2 min``."""
    unit, name = next((unit, name) for longest, unit, name in _DURATIONS if seconds < longest)
    spread = _plus_minus(deviation, 1 / unit, 1)
    return f"{seconds / unit:,.1f}{spread} {name}" if spread else _in_two_units(seconds)


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


def _plus_minus(deviation: float | None, scale: float, digits: int) -> str:
    """A deviation of exactly zero is left out: the seeds agree."""
    if not deviation:
        return ""
    return f" ± {deviation * scale:,.{digits}f}"
