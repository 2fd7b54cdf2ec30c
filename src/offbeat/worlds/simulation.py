"""The simulated world of one run, made from its configuration."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import (
    CnnSection,
    DataSection,
    EvaluateSection,
    LstmSection,
    MlpSection,
    ModelSection,
    OwnModelSection,
    ResnetSection,
    ServerSection,
    StopSection,
    metric_name,
)
from offbeat.config.import_path import call, is_import_path, load_callable
from offbeat.coordinator import Coordinator
from offbeat.data import load_dataset
from offbeat.data.dataset import Dataset
from offbeat.data.user_data import from_user
from offbeat.errors import OffbeatError
from offbeat.randomness import Purpose, integer
from offbeat.simulation.records import Stop
from offbeat.simulation.simulator import Simulation
from offbeat.training import models
from offbeat.training.augmentation import AugmentationName, check_augmentation
from offbeat.training.evaluation import Evaluator
from offbeat.training.fit_check import check_fit
from offbeat.training.flat_model import FlatModel
from offbeat.training.objectives import LOSSES, METRICS
from offbeat.training.trainers.choice import TrainerName, make_trainer
from offbeat.training.training_loss import TRAINING_LOSS, TrainingLossEvaluator, choose_evenly
from offbeat.worlds.algorithm_trial import check_first_visit
from offbeat.worlds.buffer_wrappers import wrap_buffer
from offbeat.worlds.global_randomness import fixed_randomness
from offbeat.worlds.pattern_guard import guard_pattern
from offbeat.worlds.pooled_population import pooled
from offbeat.worlds.population import Population, build_population


@dataclass(frozen=True)
class Objective:
    """What is learnt, and how it is measured.

    Attributes:
        loss: Maps (outputs, labels) to the mean loss of a minibatch.
        metrics: By name; each maps the (outputs, labels) of the whole test set to a number.
        training_loss: Whether the loss on training examples is measured, too.
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    metrics: Mapping[str, Callable[[Tensor, Tensor], float]]
    training_loss: bool = False


def build_dataset(data: DataSection) -> Dataset:
    """Return the data set of a ``[data]`` section.

    Raises:
        OffbeatError: It is broken.
        MissingDataError: It is nowhere to be found.
    """
    name = data.name
    if is_import_path(name):
        _import("data.name", name)  # so that the key is named if it cannot be
        # The same random numbers each time, for instance for a split: all processes of a comparison call it.
        with fixed_randomness(integer(0, Purpose.OWN_DATA)):
            return from_user(call(name, data.arguments, "data"), name)
    return load_dataset(name)


def build_model(section: ModelSection, dataset: Dataset | None, seed: int) -> FlatModel:
    """Return the model of a ``[model]`` section as it is before training.

    Args:
        section: Which model.
        dataset: What it is for; None if that is not known here, which only a model of the user's own can do without.
        seed: The run's seed.

    Raises:
        OffbeatError: The model is not made for such data, or cannot be trained.
    """
    with models.initial_randomness(seed):
        module = _own(section) if isinstance(section, OwnModelSection) else _built_in(section, dataset)
    return FlatModel(module, batch_norm=section.batch_norm)


def _own(section: OwnModelSection) -> nn.Module:
    _import("model.name", section.name)
    module = call(section.name, section.arguments, "model")
    if not isinstance(module, nn.Module):
        raise OffbeatError(f"model.name: {section.name} made a {type(module).__name__}, not a torch.nn.Module")
    return module


def _built_in(section: ModelSection, dataset: Dataset | None) -> nn.Module:
    if dataset is None:
        raise OffbeatError(
            f"model.name = {section.name!r}: its size depends on the data: name a data set in data.name, or take a "
            "model of your own"
        )
    shape = dataset.input_shape
    if (dataset.tokens is None) is isinstance(section, LstmSection):
        what = "no tokens" if dataset.tokens is None else "tokens"
        raise OffbeatError(f"model.name = {section.name!r}: {dataset.name} holds {what}; take another model")
    # Without classes the labels are what the outputs are to be.
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


def build_objective(experiment: Experiment) -> Objective:
    """Return the experiment's loss and metrics; raises like ``objective_of``."""
    return objective_of(experiment.model.loss, experiment.metrics)


def objective_of(loss: str, metrics: Sequence[str]) -> Objective:
    """Return a loss and metrics by their names, or import paths of the user's own.

    Raises:
        OffbeatError: An import path leads nowhere.
    """
    return Objective(
        loss=_import("model.loss", loss) if is_import_path(loss) else LOSSES[loss],
        metrics={
            metric_name(metric): _import("evaluate.metrics", metric)
            if is_import_path(metric)
            else METRICS[metric].function
            for metric in metrics
            if metric != TRAINING_LOSS
        },
        training_loss=TRAINING_LOSS in metrics,
    )


def _import(key: str, text: str) -> Callable[..., Any]:
    try:
        return load_callable(text)
    except OffbeatError as error:
        raise OffbeatError(f"{key}: {error}") from error


def build_simulation(
    experiment: Experiment,
    label: str,
    seed: int,
    dataset: Dataset,
    model: FlatModel,
    objective: Objective,
    *,
    workers: int = 1,
) -> Simulation:
    """Return the world in which ``[algorithms.LABEL]`` runs.

    Worlds of one seed hold the same clients, data, devices and initial model, whatever the algorithm.

    Args:
        experiment: The configuration.
        label: Which of its algorithms.
        seed: The run's seed.
        dataset: What is learnt.
        model: The initial model; its values are overwritten.
        objective: How it is learnt and measured.
        workers: How many processes it may train in.

    Raises:
        OffbeatError: The settings do not fit together, for instance a cohort that is larger than the population.
    """
    population = build_population(experiment.population, dataset, seed)
    try:
        return assemble(
            experiment.algorithm(label),
            experiment.plan(label),
            population,
            dataset,
            model,
            objective,
            server=experiment.server,
            stop=experiment.stop,
            evaluate=experiment.evaluate,
            trainer=experiment.trainer,
            workers=workers,
            seed=seed,
            augmentation=experiment.data.augmentation,
        )
    except ValueError as error:
        raise OffbeatError(f"algorithms.{label}: {error}") from None


def assemble(
    algorithm: Algorithm,
    plan: LocalPlan,
    population: Population,
    dataset: Dataset,
    model: FlatModel,
    objective: Objective,
    *,
    server: ServerSection,
    stop: StopSection,
    evaluate: EvaluateSection,
    trainer: TrainerName,
    workers: int,
    seed: int,
    augmentation: AugmentationName | None = None,
) -> Simulation:
    """Return a world of these parts.

    Raises:
        OffbeatError: The model does not fit the data.
        ValueError: The algorithm's settings do not fit the rest.
    """
    if algorithm.pooled:
        population = pooled(population, getattr(algorithm, "cohort", 1))
    guard_pattern(algorithm)
    wrap_buffer(algorithm, server)
    sizes = torch.tensor([len(shard) for shard in population.shards], dtype=torch.float64)
    check_first_visit(algorithm, model.vector, sizes, plan)
    inputs, labels = _tensor(dataset.train_inputs), _tensor(dataset.train_labels)
    check_augmentation(augmentation, inputs)
    # The smallest minibatch of all: what takes it takes the others.
    first = min(population.shards, key=len)[: plan.batch_size]
    check_fit(model, objective.loss, inputs[first], labels[first], classes=dataset.classes, tokens=dataset.tokens)
    clients = len(population.shards)
    coordinator = Coordinator(
        algorithm,
        model.vector,
        clients=clients,
        local=plan,
        seed=seed,
        lease_seconds=server.lease_seconds or math.inf,
        max_staleness=server.max_staleness,
        data_weights=sizes,
    )
    training = make_trainer(
        trainer,
        model,
        plan=plan,
        loss=objective.loss,
        inputs=inputs,
        labels=labels,
        shards=population.shards,
        seed=seed,
        augmentation=augmentation,
        # What is on disk since it does not fit into memory must not be copied there for other processes.
        workers=1 if trainer != "processes" and isinstance(dataset.train_inputs, np.memmap) else workers,
    )
    return Simulation(
        coordinator,
        population.devices,
        training,
        evaluate=_evaluation(objective, model, dataset, seed),
        evaluate_every_seconds=evaluate.every_seconds or math.inf,
        evaluate_every_versions=evaluate.every_versions or math.inf,
        stop=Stop(stop.virtual_seconds or math.inf, stop.versions or math.inf, stop.updates or math.inf),
        seed=seed,
    )


def _evaluation(
    objective: Objective, model: FlatModel, dataset: Dataset, seed: int
) -> Callable[[Tensor], tuple[float, dict[str, float]]]:
    """Return what measures a model as the objective says."""

    def on(inputs: Tensor, labels: Tensor, metrics: Mapping[str, Callable[[Tensor, Tensor], float]]) -> Evaluator:
        return Evaluator(model, loss=objective.loss, metrics=metrics, inputs=inputs, labels=labels, seed=seed)

    on_test = on(_tensor(dataset.test_inputs), _tensor(dataset.test_labels), objective.metrics)
    if not objective.training_loss:
        return on_test
    inputs, labels = choose_evenly(_tensor(dataset.train_inputs), _tensor(dataset.train_labels))
    return TrainingLossEvaluator(on_test, on(inputs, labels, {}))


def _tensor(array: NDArray[Any]) -> Tensor:
    """Return an array as a tensor in the same memory."""
    with warnings.catch_warnings():
        # A file larger than the memory can only be mapped read-only; nobody writes, models and losses get copies.
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(array)
