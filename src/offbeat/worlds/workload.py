"""Data, model, loss and metrics of a run, made from their sections."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError, setting
from offbeat_core.randomness import Purpose, integer
from offbeat_core.tables.validation_errors import error_prefix
from offbeat_core.user_code_errors import error_line, failure
from torch import nn

from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import DataOnDevice, DataSection, metric_name
from offbeat.config.given_objects import Given
from offbeat.config.import_path import call, is_import_path, load_callable
from offbeat.config.model_sections import (
    CnnSection,
    LstmSection,
    MlpSection,
    ModelSection,
    OwnModelSection,
    ResnetSection,
)
from offbeat.data import load_dataset
from offbeat.data.dataset import Dataset
from offbeat.data.user_data import from_user
from offbeat.data.user_examples import Collate
from offbeat.data.validation_part import with_validation_part
from offbeat.model_inputs import map_inputs
from offbeat.training import models
from offbeat.training.accelerator import CPU, Accelerator
from offbeat.training.default_metrics import default_metrics
from offbeat.training.flat_model import FlatModel, check_parameters
from offbeat.training.loss_modules import Function, check_loss
from offbeat.training.objectives import LOSSES, METRICS, Objective
from offbeat.training.trainer_names import TRAINING_LOSS
from offbeat.training.trainers.hooks import parameter_with_hook
from offbeat.training.workload import Examples, Workload, as_tensor

_SHARE = 0.5  # of a GPU's free memory; models, gradients and activations need the rest


def build_workload(
    experiment: Experiment, dataset: Dataset, shards: Sequence[NDArray[np.int64]], seed: int
) -> Workload:
    """Return the workload of a run, whose clients hold these shards."""
    model = build_model(experiment.model, dataset, seed)
    objective = build_objective(experiment.model.loss, experiment.metrics)
    train, test = as_examples(dataset)
    return Workload(model, objective, train, shards, seed, test=test, augmentation=experiment.data.augmentation)


def fits_on_device(workload: Workload, accelerator: Accelerator, choice: DataOnDevice) -> bool:
    """Return whether a run's examples are to lie in the accelerator's memory.

    ``auto`` means: if they take at most half of a GPU's free memory.
    """
    if choice != "auto" or not accelerator.is_cuda:
        return choice != "never"
    free, _ = torch.cuda.mem_get_info(accelerator.device)
    test = 0 if workload.test is None else workload.test.nbytes
    return workload.train.nbytes + test <= _SHARE * free


def as_examples(dataset: Dataset) -> tuple[Examples, Examples]:
    """Return the training and the test set of a data set, in the same memory."""
    return (
        Examples(map_inputs(as_tensor, dataset.train_inputs), as_tensor(dataset.train_labels)),
        Examples(map_inputs(as_tensor, dataset.test_inputs), as_tensor(dataset.test_labels)),
    )


def build_dataset(data: DataSection) -> Dataset:
    """Return the data set of a ``[data]`` section."""
    dataset = _whole_dataset(data)
    if data.validation is None:
        return dataset
    with error_prefix("data.validation"):
        return with_validation_part(dataset, data.validation)


def _whole_dataset(data: DataSection) -> Dataset:
    name = data.name
    if isinstance(name, Given):
        return from_user(name.value, "data", collate=_collate(data))
    if is_import_path(name):
        _import("data.name", name)  # so that an error names the key
        # Every process of a comparison calls the function: each gets the same random numbers, for instance for a split.
        with CPU.forked_randomness():
            CPU.seed(integer(0, Purpose.OWN_DATA))
            collate = _collate(data)
            return from_user(call(name, data.arguments, "data"), name, collate=collate)
    return load_dataset(name)


def _collate(data: DataSection) -> Collate | None:
    return None if data.collate is None else _import("data.collate", data.collate)


def build_model(section: ModelSection, dataset: Dataset | None, seed: int) -> FlatModel:
    """Return the initial model; a built-in one needs ``dataset``."""
    with models.initial_randomness(seed):
        module = _users_model(section) if isinstance(section, OwnModelSection) else _built_in_model(section, dataset)
    return FlatModel(module, batch_norm=section.batch_norm)


def _users_model(section: OwnModelSection) -> nn.Module:
    if isinstance(section.name, Given):
        return _given_model(section.name.value)
    _import("model.name", section.name)
    module = call(section.name, section.arguments, "model")
    if not isinstance(module, nn.Module):
        raise OffbeatError(f"model.name: {section.name} made a {type(module).__name__}, not a torch.nn.Module")
    return module


def _given_model(model: object) -> nn.Module:
    """Return a copy of a module, or what a function makes."""
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
        made = model()
    except Exception as error:
        raise failure("model failed", error) from error
    if not isinstance(made, nn.Module):
        raise OffbeatError(f"model made a {type(made).__name__}, not a torch.nn.Module")
    return made


def _built_in_model(section: ModelSection, dataset: Dataset | None) -> nn.Module:
    if dataset is None:
        raise OffbeatError(
            f"model.name = {section.name!r}: its size depends on the data: name a data set in data.name, or use a "
            "model of your own"
        )
    with error_prefix(f"model.name = {section.name!r}"):
        shape = dataset.input_shape
    if (dataset.tokens is None) is isinstance(section, LstmSection):
        content = "no tokens" if dataset.tokens is None else "tokens"
        raise OffbeatError(f"model.name = {section.name!r}: {dataset.name} holds {content}; use another model")
    # Without classes the labels are target values, one for each output.
    outputs = dataset.classes or math.prod(dataset.train_labels.shape[1:])
    match section:
        case LstmSection():
            assert dataset.tokens is not None
            return models.lstm(dataset.tokens, outputs, embedding=section.embedding, hidden=section.hidden)
        case MlpSection():
            return models.mlp(shape, outputs, section.hidden)
        case CnnSection():
            return models.cnn(shape, outputs)
        case ResnetSection():
            return models.resnet18(shape, outputs)
        case _:
            return models.softmax_regression(shape, outputs)


def build_objective(loss: str | Given, metrics: Sequence[str | Given]) -> Objective:
    """Return a loss and metrics, which may be names or import paths."""
    objective = Objective(
        loss=load_loss(loss),
        metrics={
            metric_name(metric): METRICS[metric].function
            if isinstance(metric, str) and not is_import_path(metric)
            else _import("evaluate.metrics", metric)
            for metric in metrics
            if metric != TRAINING_LOSS
        },
        training_loss=TRAINING_LOSS in metrics,
    )
    with error_prefix("evaluate.metrics"):
        _ = objective.bounds  # which may be wrong
    return objective


def with_default_metrics(experiment: Experiment, dataset: Dataset) -> Experiment:
    """Return an experiment with metrics: its own, else the default ones for its data."""
    if experiment.evaluate.metrics is not None:
        return experiment
    metrics = default_metrics(load_loss(experiment.model.loss), dataset.train_labels)
    evaluate = experiment.evaluate.model_copy(update={"metrics": tuple(metrics)})
    return experiment.model_copy(update={"evaluate": evaluate})


def load_loss(loss: str | Given) -> Function:
    """Return a loss by its name or import path, or the given one."""
    if isinstance(loss, str) and not is_import_path(loss):
        return LOSSES[loss]
    found = _import("model.loss", loss)
    check_loss(setting("model.loss"), found)
    return found


def _import(key: str, function: str | Given) -> Callable[..., Any]:
    """Return the function at an import path, or the given one."""
    if isinstance(function, Given):
        return function.value
    with error_prefix(key):
        return load_callable(function)
