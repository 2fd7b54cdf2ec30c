"""The experiment and the objects that the arguments of ``offbeat.simulate`` are."""

import copy
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from offbeat_core.errors import OffbeatError
from offbeat_core.number_checks import plain_number
from offbeat_core.tables.validation_errors import mistakes, user_error
from offbeat_core.user_code_errors import error_line, failure
from pydantic import ValidationError
from torch import Tensor, nn

from offbeat.algorithms import ALGORITHMS, Algorithm, LocalPlan
from offbeat.config.compression_table import check_compression
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import LocalSection
from offbeat.config.steps_function import StepsFunction
from offbeat.training.flat_model import check_parameters
from offbeat.training.loss_modules import check_loss, name_of_loss
from offbeat.training.models import initial_randomness
from offbeat.training.objectives import Objective
from offbeat.training.trainers.hooks import parameter_with_hook
from offbeat.worlds.workload import build_objective

Function = Callable[[Tensor, Tensor], Any]


def experiment_of(table: Mapping[str, Any], metrics: Mapping[str, Function]) -> Experiment:
    """Return the experiment of a table whose None values are left out.

    ``metrics`` are functions that it may name.
    """
    given = {
        section: {key: value for key, value in values.items() if value is not None}
        if isinstance(values, Mapping)
        else values
        for section, values in cast("dict[str, Any]", _plain(table)).items()
        if values is not None
    }
    try:
        return Experiment.model_validate(given, context={"folder": Path(), "given_metrics": metrics})
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


def path_of(given: object) -> str:
    """Return an import path that stands for an object, such as ``python:Net``."""
    name = getattr(given, "__name__", type(given).__name__)
    return f"python:{name if str(name).isidentifier() else type(given).__name__}"


def label_of(algorithm: Algorithm | str) -> str:
    """Return the label of an algorithm's table."""
    # Only a subclass surely has every method of the contract.
    if not isinstance(algorithm, str) and Algorithm not in type(algorithm).__mro__:
        raise OffbeatError(f"algorithm = {algorithm!r}: must be a name or an algorithm such as FedBuff(buffer_size=5)")
    name = algorithm if isinstance(algorithm, str) else algorithm.name
    return re.sub(r"[^\w.+-]", "-", name.rpartition(":")[2]).lstrip("-_.+") or "algorithm"


def algorithm_path(algorithm: Algorithm | str) -> str:
    """Return the name of a built-in algorithm, or an import path."""
    if isinstance(algorithm, str):
        return algorithm
    return algorithm.name if ALGORITHMS.get(algorithm.name) is type(algorithm) else path_of(algorithm)


def local_of(local: LocalPlan | Mapping[str, Any]) -> LocalSection | Mapping[str, Any]:
    """Return the section of a plan, which has been checked when it was made."""
    if not isinstance(local, LocalPlan):
        steps: Any = local.get("steps") if isinstance(local, Mapping) else None  # pyright: ignore[reportUnnecessaryIsInstance]
        return {**local, "steps": StepsFunction(steps, path_of(steps))} if callable(steps) else local
    if local.steps_by is not None or local.by_epochs:
        raise OffbeatError("local: give a table such as {'epochs': 2, …} for epochs, or for steps by client")
    values = {field.name: getattr(local, field.name) for field in dataclasses.fields(local)}
    made = {"compression": check_compression("local.compression", local.compression), "lr_decay": local.lr_decay}
    tables = {key: value and {"name": value.name, **dict(value.parameters)} for key, value in made.items()}
    return LocalSection.model_construct(**_plain(values | tables))


def module_of(model: nn.Module | Callable[[], object], seed: int) -> nn.Module:
    """Return a copy of a module, or what a function makes from the run's seed."""
    if isinstance(model, nn.Module):
        hooked = parameter_with_hook(model)
        if hooked is not None:  # a copy would not have it
            raise OffbeatError(f"model: its parameter {hooked} has a hook: pass the class or a function")
        check_parameters(model)
        try:
            return copy.deepcopy(model)
        except Exception as error:  # such as a TypeError for a lock
            raise OffbeatError(f"model cannot be copied ({error_line(error)}): pass the class or a function") from None
    if not callable(model):
        raise OffbeatError(f"model = {model!r}: must be a torch.nn.Module, or a function that makes one")
    try:
        with initial_randomness(seed):
            made = model()
    except Exception as error:
        raise failure("model failed", error) from error
    if not isinstance(made, nn.Module):
        raise OffbeatError(f"model made a {type(made).__name__}, not a torch.nn.Module")
    return made


def metrics_of(
    loss: str | Function, metrics: Sequence[str] | Mapping[str, Function] | None
) -> tuple[list[str], dict[str, Function]]:
    """Return the names of the metrics, and the functions of those that are given."""
    if not isinstance(loss, str) and not callable(loss):
        raise OffbeatError(f"loss = {loss!r}: must be a name or a function of (outputs, labels)")
    if not isinstance(loss, str):
        check_loss("loss", loss)
    name = loss if isinstance(loss, str) else name_of_loss(loss)
    if metrics is None:
        return ["accuracy"] if name in ("cross_entropy", "bce") else [], {}
    if not isinstance(metrics, Mapping):
        names: Any = [metrics] if isinstance(metrics, str) else metrics
        if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
            raise OffbeatError("metrics: must be names, or a dict of functions by name, such as {'f1': my_f1}")
        return list(names), {}
    for name, function in metrics.items():
        if not callable(function) or ":" in name:
            raise OffbeatError(f"metrics: {name!r} must be a function of (outputs, labels), its name without a colon")
    return list(metrics), dict(metrics)


def objective_of(experiment: Experiment, loss: str | Function, functions: Mapping[str, Function]) -> Objective:
    """Return the experiment's loss and metrics, with the functions that are given."""
    names = [metric for metric in experiment.metrics if metric not in functions]
    named = build_objective(experiment.model.loss if isinstance(loss, str) else "mse", names)
    return Objective(named.loss if isinstance(loss, str) else loss, {**named.metrics, **functions}, named.training_loss)
