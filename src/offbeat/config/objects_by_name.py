"""Objects from tables that name a factory: ``{ name = "polynomial", a = 0.5 }``."""

import inspect
from collections.abc import Callable, Mapping
from types import MappingProxyType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from offbeat_core.errors import OffbeatError, did_you_mean
from offbeat_core.number_checks import short
from offbeat_core.tables.validation_errors import reason
from pydantic import TypeAdapter, ValidationError


def make_by_name(
    key: str,
    value: Any,
    factories: Mapping[str, Callable[..., Any]],
    defaults: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Return the object that a table describes; errors begin with ``key``.

    The factories are functions or classes with annotated parameters. ``defaults`` are for those that have them.
    """
    if not isinstance(value, dict) or "name" not in value:
        raise OffbeatError(f"{key} = {short(value)}: must be a table such as {_example(factories)}")
    arguments = dict(value)
    name = arguments.pop("name")
    if not isinstance(name, str) or name not in factories:
        raise OffbeatError(f"{key}.name = {short(name)}: {did_you_mean(str(name), factories)}")
    factory = factories[name]
    allowed = inspect.signature(factory).parameters
    hints = get_type_hints(factory.__init__ if isinstance(factory, type) else factory)
    for argument, given in arguments.items():
        if argument not in allowed:
            hint = did_you_mean(argument, allowed) if allowed else f"{name} has no parameters"
            raise OffbeatError(f"unknown key {key}.{short(argument)[1:-1]}: {hint}")
        arguments[argument] = check_type(f"{key}.{argument}", given, hints[argument])
    missing = [argument for argument in required_parameters(factory) if argument not in arguments]
    if missing:
        raise OffbeatError(f"{key}.{missing[0]} is missing")
    try:
        return factory(**{name: value for name, value in defaults.items() if name in allowed} | arguments)
    except ValueError as error:
        raise OffbeatError(f"{key}: {error}") from None


def required_parameters(factory: Callable[..., Any]) -> list[str]:
    """Return the parameters without a default."""
    return [name for name, p in inspect.signature(factory).parameters.items() if p.default is p.empty]


def check_type(key: str, value: Any, hint: Any) -> Any:
    """Return a value from a TOML file, with a list as a tuple if the type is one."""
    converted = value
    if isinstance(value, list):
        length = _length(hint)
        if length is not None and len(value) != length:
            raise OffbeatError(f"{key} = {short(value)}: must be a list of {length}")
        converted = tuple(value) if _is_tuple(hint) else value
    try:
        return TypeAdapter(hint).validate_python(converted, strict=True)
    except ValidationError as error:
        problem = "must be a list" if _is_tuple(hint) and not isinstance(value, list) else reason(error.errors()[0])
        raise OffbeatError(f"{key} = {short(value)}: {problem}") from None


def _example(factories: Mapping[str, Callable[..., Any]]) -> str:
    name, factory = next(iter(factories.items()))
    words = [f'name = "{name}"', *(f"{argument} = …" for argument in required_parameters(factory))]
    return f"{{ {', '.join(words)} }}; names: {', '.join(factories)}"


def _is_tuple(hint: Any) -> bool:
    """Return whether a value of this type may be a tuple, but not a list."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [get_origin(kind) or kind for kind in get_args(hint)]
        return tuple in kinds and list not in kinds
    return (get_origin(hint) or hint) is tuple


def _length(hint: Any) -> int | None:
    """Return the length of tuples of this type; None if it is not fixed."""
    kinds = get_args(hint) if get_origin(hint) is tuple else ()
    return len(kinds) if kinds and Ellipsis not in kinds else None
