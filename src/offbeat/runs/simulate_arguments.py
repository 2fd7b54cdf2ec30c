"""Checks and conversions of the arguments of ``offbeat.simulate``."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel, ValidationError
from torch import Tensor, nn

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.config.compression_table import check_compression
from offbeat.config.experiment_sections import RESERVED, LocalSection
from offbeat.config.validation_errors import mistakes, user_error
from offbeat.errors import OffbeatError, did_you_mean
from offbeat.training.accelerator import Accelerator, Precision, choose_device
from offbeat.training.augmentation import AUGMENTATIONS
from offbeat.training.flat_model import refuse_shared_memory
from offbeat.training.loss_modules import name_of_loss
from offbeat.training.models import initial_randomness
from offbeat.training.objectives import LOSSES, METRICS, Objective
from offbeat.training.trainers.hooks import parameter_with_hook
from offbeat.training.trainers.names import TRAINERS
from offbeat.training.training_loss import TRAINING_LOSS
from offbeat_client.user_code_errors import error_line, failure

Function = Callable[[Tensor, Tensor], Any]

_Table = TypeVar("_Table", bound=BaseModel)


def check_arguments(algorithm: object, batch_norm: object, augmentation: object, trainer: object, seed: object) -> None:
    """Raise ``OffbeatError`` for the first argument that is not among its choices."""
    # Only a subclass surely has every method of the contract.
    if not isinstance(algorithm, str) and Algorithm not in type(algorithm).__mro__:
        raise OffbeatError(f"algorithm = {algorithm!r}: must be a name or an algorithm such as FedBuff(buffer_size=5)")
    if batch_norm not in ("refuse", "local"):
        raise OffbeatError(f"batch_norm = {batch_norm!r}: must be 'refuse' or 'local'")
    if augmentation is not None and augmentation not in tuple(AUGMENTATIONS):
        raise OffbeatError(f"augmentation = {augmentation!r}: must be None or {' or '.join(map(repr, AUGMENTATIONS))}")
    if trainer not in TRAINERS:
        raise OffbeatError(f"trainer = {trainer!r}: must be {' or '.join(map(repr, TRAINERS))}")
    if not isinstance(seed, Integral) or not 0 <= int(seed) < 2**63:
        raise OffbeatError(f"seed = {seed!r}: must be a whole number from 0 to 2**63 - 1")


def accelerator_of(device: object, precision: object, deterministic: bool) -> Accelerator:
    """Return the accelerator; an ``OffbeatError`` if it is not there."""
    if precision not in get_args(Precision):
        raise OffbeatError(f"precision = {precision!r}: must be {' or '.join(map(repr, get_args(Precision)))}")
    return Accelerator(choose_device(str(device)), cast(Precision, precision), deterministic)


def table_of(kind: type[_Table], values: Mapping[str, Any], key: str | None = None) -> _Table:
    """Return a section from a dict; its key in messages is the section's name."""
    key = key or kind.__name__.removesuffix("Section").lower()
    if not isinstance(values, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - users' notebooks are not checked
        raise OffbeatError(f"{key} = {values!r}: must be a table, for instance a dict")
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return kind.model_validate(given, context={"folder": Path()})
    except ValidationError as error:
        raise user_error(mistakes(error, given, key)) from None


def plan_of(local: LocalPlan | Mapping[str, Any]) -> LocalPlan:
    """Return the plan of a visit."""
    if isinstance(local, LocalPlan):
        return replace(local, compression=check_compression("local.compression", local.compression))
    return table_of(LocalSection, local).plan()


def module_of(model: nn.Module | Callable[[], object], seed: int) -> nn.Module:
    """Return a copy of a module, or what a function makes from the run's seed."""
    if isinstance(model, nn.Module):
        hooked = parameter_with_hook(model)
        if hooked is not None:  # a copy would not have it
            raise OffbeatError(f"model: its parameter {hooked} has a hook: pass the class or a function")
        refuse_shared_memory(model)
        try:
            return copy.deepcopy(model)
        except RuntimeError as error:
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


def objective_of(loss: str | Function, metrics: Sequence[str] | Mapping[str, Function] | None) -> Objective:
    """Return the loss and the metrics, given by name or as functions."""
    if not isinstance(loss, str) and not callable(loss):
        raise OffbeatError(f"loss = {loss!r}: must be a name or a function of (outputs, labels)")
    name = loss if isinstance(loss, str) else name_of_loss(loss)
    if metrics is None:
        metrics = ["accuracy"] if name in ("cross_entropy", "bce") else []
    training_loss = False
    if not isinstance(metrics, Mapping):
        names: Any = [metrics] if isinstance(metrics, str) else metrics
        if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
            raise OffbeatError("metrics: must be names, or a dict of functions by name, such as {'f1': my_f1}")
        training_loss = TRAINING_LOSS in names
        known = {**{name: metric.function for name, metric in METRICS.items()}, TRAINING_LOSS: None}
        metrics = {name: _look_up(name, known, "metrics") for name in names if name != TRAINING_LOSS}
    for name, function in metrics.items():
        if not callable(function) or name in RESERVED:
            raise OffbeatError(
                f"metrics: {name!r} must be a function of (outputs, labels), and its name must not be one of "
                f"{', '.join(sorted(RESERVED))}"
            )
    return Objective(_look_up(loss, LOSSES, "loss") if isinstance(loss, str) else loss, metrics, training_loss)


def _look_up(name: str, known: Mapping[str, Any], key: str) -> Any:
    if name not in known:
        raise OffbeatError(f"{key} = {name!r}: {did_you_mean(name, known)}, or pass a function")
    return known[name]
