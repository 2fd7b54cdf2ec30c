"""Hyper-parameters: annotated types with bounds, and their checks.

The bounds are those of ``annotated_types``, so pydantic reads them too: one annotation checks the Python call and the
TOML file, and fills the reference page.
"""

from dataclasses import fields
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Interval
from offbeat_core.number_checks import LARGEST_COUNT, LARGEST_FLOAT32, is_number, plain_number, short

Count = Annotated[int, Interval(ge=1, le=LARGEST_COUNT)]
Positive = Annotated[float, Interval(gt=0, le=LARGEST_FLOAT32)]
Period = Annotated[float, Interval(ge=1e-3, le=LARGEST_FLOAT32)]
NotNegative = Annotated[float, Interval(ge=0, le=LARGEST_FLOAT32)]
Share = Annotated[float, Interval(gt=0, le=1)]
Weighting = Literal["examples", "uniform"]
"""The weight of clients: by their numbers of examples, or all equal."""


def hyper_parameters(kind: type[Any]) -> dict[str, Any]:
    """Return the types of an algorithm's hyper-parameters by name, as declared."""
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: hints[field.name] for field in fields(kind)}


def check_hyper_parameters(algorithm: Any) -> None:
    """Raise ``ValueError`` if a value is out of the bounds of its annotation.

    Numbers of numpy and torch become Python's.
    """
    for name, hint in hyper_parameters(type(algorithm)).items():
        given = getattr(algorithm, name)
        number = plain_number(given)
        _check(name, number, hint)
        if number is not given:
            setattr(algorithm, name, number)


def _check(name: str, value: Any, hint: Any) -> None:
    if get_origin(hint) in (Union, UnionType):
        options = [option for option in get_args(hint) if option is not NoneType]
        if len(options) == 1 and value is not None:
            _check(name, value, options[0])
        return
    if isinstance(hint, type) and value is None:
        raise ValueError(f"{name} must not be None: leave it out")
    if get_origin(hint) is Literal and value not in get_args(hint):
        choices = " or ".join(repr(choice) for choice in get_args(hint))
        raise ValueError(f"{name} must be {choices}, got {short(value)}")
    if get_origin(hint) is Annotated:
        kind, *bounds = get_args(hint)
        for bound in bounds:
            if isinstance(bound, Interval):
                _check_number(name, value, bound, is_whole=kind is int)


def _check_number(name: str, value: Any, bound: Interval, *, is_whole: bool) -> None:
    kind = Integral if is_whole else Real
    if is_whole and isinstance(value, int) and value > LARGEST_COUNT:
        raise ValueError(f"{name} must be at most {LARGEST_COUNT}, got {value}")
    if isinstance(value, float) and not abs(value) <= LARGEST_FLOAT32:
        raise ValueError(f"{name} must be finite in 32 bits, got {value}")
    if not is_number(value) or not isinstance(value, kind) or not _contains(bound, value):
        words = "a whole number " if is_whole else ""
        raise ValueError(f"{name} must be {words}{_range(bound, 'of ' if is_whole else '')}, got {short(value)}")


def _contains(bound: Interval, value: Any) -> bool:
    above = (bound.ge is None or value >= bound.ge) and (bound.gt is None or value > bound.gt)
    return above and (bound.le is None or value <= bound.le) and (bound.lt is None or value < bound.lt)


def _range(bound: Interval, at_least: str) -> str:
    lower, upper = bound.gt if bound.ge is None else bound.ge, bound.lt if bound.le is None else bound.le
    if upper in (None, LARGEST_COUNT, LARGEST_FLOAT32):
        return f"greater than {lower}" if bound.ge is None else f"{at_least}at least {lower}"
    return f"in {'(' if bound.ge is None else '['}{lower}, {upper}{')' if bound.le is None else ']'}"
