"""An algorithm from its TOML table, and the table from an algorithm."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args, get_type_hints

import tomli_w
from offbeat_core.errors import OffbeatError, did_you_mean
from offbeat_core.number_checks import short
from offbeat_core.tables.validation_errors import error_prefix

from offbeat.algorithms import ALGORITHMS, Algorithm
from offbeat.algorithms.components.schedules.patterns import PATTERNS, Pattern, own
from offbeat.algorithms.components.server_optimizer import SERVER_OPTIMIZERS, ServerOptimizer
from offbeat.algorithms.components.weights import STALENESS, STEP_SIZES, Staleness, StepSizes
from offbeat.config.import_path import call, is_import_path, load_callable
from offbeat.config.objects_by_name import check_type, make_by_name

# Hyper-parameters whose table names the function that makes them: { name = "polynomial", a = 0.5 }.
FACTORIES: dict[str, Mapping[str, Callable[..., Any]]] = {
    "staleness": STALENESS,
    "server_optimizer": SERVER_OPTIMIZERS,
    "pattern": PATTERNS,
    "step_sizes": STEP_SIZES,
}
_OBJECTS = (Staleness, ServerOptimizer, Pattern, StepSizes)


def build_algorithm(name: str, hyper_parameters: Mapping[str, Any], seed: int = 0) -> Algorithm:
    """Return the algorithm of this name or import path, not started.

    Tables without a ``seed``, such as that of the pattern ``random``, get the run's.
    """
    kind = _algorithm_class(name)
    defaults = default_hyper_parameters(kind)
    hints = _type_hints(name, kind)
    arguments: dict[str, Any] = {}
    for key, value in hyper_parameters.items():
        if key not in defaults:
            raise OffbeatError(f"unknown key {short(key)}: {did_you_mean(key, [*defaults, 'algorithm', 'local'])}")
        hint = hints.get(key, Any)
        if _is_object(key, hint):
            arguments[key] = make_by_name(key, value, _factories(key, value), {"seed": seed})
        else:
            arguments[key] = check_type(key, value, hint)
    if is_import_path(name):
        algorithm = call(name, arguments, "algorithm")
        _check_attributes(name, algorithm, defaults)
        return algorithm
    try:
        return kind(**arguments)
    except ValueError as error:
        raise OffbeatError(str(error)) from None


def _is_object(key: str, hint: Any) -> bool:
    # In a user's algorithm the same key may have another type.
    return key in FACTORIES and (hint is Any or not set(_OBJECTS).isdisjoint((hint, *get_args(hint))))


def _factories(key: str, value: Any) -> Mapping[str, Callable[..., Any]]:
    """Return a hyper-parameter's factories; a pattern may be an import path."""
    name = value.get("name") if isinstance(value, dict) else None
    if key != "pattern" or not isinstance(name, str) or not is_import_path(name):
        return FACTORIES[key]
    with error_prefix("pattern.name"):
        rule = load_callable(name)

    def make(longest_gap: int) -> Pattern:
        return own(rule, longest_gap, name)

    return {name: make}


def _type_hints(name: str, kind: type[Algorithm]) -> dict[str, Any]:
    try:
        return get_type_hints(kind.__init__, include_extras=True)
    except Exception as error:
        raise OffbeatError(f"algorithm {name!r}: a type in its __init__ is wrong: {error}") from error


def _check_attributes(name: str, algorithm: Algorithm, keys: Iterable[str]) -> None:
    for key in keys:
        if not hasattr(algorithm, key):
            raise OffbeatError(f"algorithm {name!r} must keep its hyper-parameter {key} as an attribute of that name")
    try:
        tomli_w.dumps(hyper_parameters_of(algorithm))
    except TypeError as error:
        raise OffbeatError(f"algorithm {name!r}: a hyper-parameter cannot be written as TOML: {error}") from None
    for attribute in ("name", "payload"):
        if not hasattr(algorithm, attribute):
            raise OffbeatError(f"algorithm {name!r} must have the attribute {attribute!r}")


def _algorithm_class(name: str) -> type[Algorithm]:
    if is_import_path(name):
        found: object = load_callable(name)
        # Only a subclass surely has every method of the contract.
        if not isinstance(found, type) or Algorithm not in found.__mro__:
            raise OffbeatError(f"algorithm = {name!r}: must be a subclass of offbeat.algorithms.Algorithm")
        return found
    if name not in ALGORITHMS:
        # The name may be the label of the table: [algorithms.mine].
        raise OffbeatError(
            f"unknown algorithm {short(name)}: {did_you_mean(name, ALGORITHMS)}; "
            "if this is a label of your own, name the algorithm in the key algorithm"
        )
    return ALGORITHMS[name]


def default_hyper_parameters(kind: type[Algorithm]) -> dict[str, Any]:
    """Return an algorithm's hyper-parameters with defaults, in order of declaration."""
    parameters = inspect.signature(kind).parameters.values()
    return {parameter.name: parameter.default for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def hyper_parameters_of(algorithm: Algorithm) -> dict[str, Any]:
    """Return hyper-parameters as a table, the input of ``build_algorithm``."""
    values = {key: getattr(algorithm, key) for key in default_hyper_parameters(type(algorithm))}
    return {
        key: {"name": value.name, **value.parameters} if isinstance(value, _OBJECTS) else value
        for key, value in values.items()
        if value is not None
    }


def as_inline_toml(value: Any) -> str:
    """Return a hyper-parameter's value as one line of TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {as_inline_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(as_inline_toml(inner) for inner in value) + "]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()
