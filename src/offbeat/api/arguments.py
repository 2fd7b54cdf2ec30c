"""The arguments of ``offbeat.simulate`` as an experiment."""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from offbeat_core.errors import OffbeatError, did_you_mean, settings_named
from offbeat_core.number_checks import plain_number
from offbeat_core.tables.validation_errors import mistakes, user_error
from pydantic import ValidationError
from torch import Tensor

from offbeat.algorithms import ALGORITHMS, Algorithm, LocalPlan
from offbeat.config.algorithm_table import build_algorithm
from offbeat.config.experiment_file import Experiment
from offbeat.config.given_objects import Given
from offbeat.config.import_path import canonical, is_import_path
from offbeat.config.local_section import LocalSection, StepsFunction, check_compression

_P = ParamSpec("_P")
_Result = TypeVar("_Result")

Function = Callable[[Tensor, Tensor], Any]

# The arguments that are a key of a section; error messages have their names in place of the key's.
_NAMES = {
    "seeds.0": "seed",
    "data": "",
    "data.name": "data",
    "data.augmentation": "augmentation",
    "data.collate": "collate",
    "model": "",
    "model.loss": "loss",
    "model.batch_norm": "batch_norm",
    "evaluate": "",
    "evaluate.every_seconds": "evaluate_every_seconds",
    "evaluate.every_versions": "evaluate_every_versions",
    "every_seconds": "evaluate_every_seconds",
    "every_versions": "evaluate_every_versions",
    "evaluate.on_clients": "evaluate_on_clients",
    "evaluate.metrics": "metrics",
    "stop": "",
    "stop.metric": "stop_metric",
    **{f"stop.{name}": name for name in ("virtual_seconds", "versions", "updates", "target", "patience")},
}
_BY_CLIENT = ("step_seconds", "down_bytes_per_second", "up_bytes_per_second", "availability")


def named_by_arguments(function: Callable[_P, _Result]) -> Callable[_P, _Result]:
    """Let a function's errors name its arguments; a misspelt one gets a hint."""
    names = inspect.signature(function).parameters

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _Result:
        for name in kwargs:
            if name not in names:
                raise OffbeatError(f"unknown argument {name}: {did_you_mean(name, names)}")
        with settings_named(_NAMES):
            return function(*args, **kwargs)

    return call


def experiment_of(sections: Mapping[str, Any]) -> Experiment:
    """Return the experiment of these sections, whose None values are left out.

    Raises ``OffbeatError`` with all mistakes at once.
    """
    given = {
        section: {key: value for key, value in values.items() if value is not None}
        if isinstance(values, Mapping)
        else values
        for section, values in cast("dict[str, Any]", _plain(sections)).items()
        if values is not None
    }
    try:
        return Experiment.model_validate(given, context={"folder": Path(), "own": "pass your own"})
    except ValidationError as error:
        raise user_error(mistakes(error, given)) from None


def _plain(value: Any) -> Any:
    """Return a value with Python's numbers in place of others', and plain dicts."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        items = map(_plain, cast("Sequence[Any]", value))
        return tuple(items) if isinstance(value, tuple) else list(items)
    # pydantic takes times of numpy for floats.
    return str(value) if isinstance(value, np.timedelta64 | np.datetime64) else plain_number(value)


def given_unless_named(value: Any) -> Any:
    """Return a name as it is, and another object as one that is given."""
    return value if value is None or isinstance(value, str) else Given.of(value)


def label_of(algorithm: Algorithm | str) -> str:
    """Return the label of an algorithm's table."""
    # Only a subclass surely has every method of the contract.
    if not isinstance(algorithm, str) and Algorithm not in type(algorithm).__mro__:
        raise OffbeatError(f"algorithm = {algorithm!r}: must be a name or an algorithm such as FedBuff(buffer_size=5)")
    name = algorithm if isinstance(algorithm, str) else algorithm.name
    return re.sub(r"[^\w.+-]", "-", name.rpartition(":")[2]).lstrip("-_.+") or "algorithm"


def algorithm_of(algorithm: Algorithm | str) -> Given:
    """Return an algorithm, or the one of this name with its defaults."""
    if isinstance(algorithm, str):
        name = canonical(algorithm, Path()) if is_import_path(algorithm) else algorithm
        return Given(build_algorithm(name, {}), name)
    is_built_in = ALGORITHMS.get(algorithm.name) is type(algorithm)
    return Given(algorithm, algorithm.name) if is_built_in else Given.of(algorithm)


def local_of(local: LocalPlan | Mapping[str, Any]) -> LocalSection | Mapping[str, Any]:
    """Return the section of a plan, which has been checked when it was made."""
    if not isinstance(local, LocalPlan):
        steps: Any = local.get("steps") if isinstance(local, Mapping) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        return {**local, "steps": StepsFunction(steps, Given.of(steps).name)} if callable(steps) else local
    if local.steps_by is not None or local.by_epochs:
        raise OffbeatError("local: give a table such as {'epochs': 2, …} for epochs, or for steps by client")
    values = {field.name: getattr(local, field.name) for field in dataclasses.fields(local)}
    made = {"compression": check_compression("local.compression", local.compression), "lr_decay": local.lr_decay}
    tables = {key: value and {"name": value.name, **dict(value.parameters)} for key, value in made.items()}
    return LocalSection.model_construct(**_plain(values | tables))


def population_of(population: int | Mapping[str, Any]) -> Any:
    """Return the section's table, in which arrays and functions are given objects."""
    if not isinstance(population, Mapping):
        return {"clients": population} if isinstance(plain_number(population), int) else population
    return {
        key: Given(value, "given in Python") if key in _BY_CLIENT and not _is_in_files(value) else value
        for key, value in population.items()
    }


def _is_in_files(value: Any) -> bool:
    """Return whether a value has a kind that a file can hold."""
    is_number = getattr(value, "ndim", None) == 0  # of numpy or torch
    return isinstance(value, Mapping | str | bool | int | float | None) or is_number


def metrics_of(metrics: Sequence[str] | Mapping[str, Function] | None) -> list[str | Given] | None:
    """Return the names of metrics, or the given functions with their names."""
    if metrics is None:
        return None
    if not isinstance(metrics, Mapping):
        names: Any = [metrics] if isinstance(metrics, str) else metrics
        if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
            raise OffbeatError("metrics: must be names, or a dict of functions by name, such as {'f1': my_f1}")
        return list(names)
    for name, function in metrics.items():
        if not callable(function) or ":" in name:
            raise OffbeatError(f"metrics: {name!r} must be a function of (outputs, labels), its name without a colon")
    return [Given(function, name) for name, function in metrics.items()]
