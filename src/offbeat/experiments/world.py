"""The simulated world of one run, made from its configuration."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from offbeat.coordinator import Coordinator
from offbeat.errors import OffbeatError
from offbeat.experiments.config import Experiment
from offbeat.experiments.sections import DirichletSection, DistributionSection, MlpSection, PopulationSection
from offbeat.population import devices, distributions, partition
from offbeat.population.dataset import Dataset
from offbeat.population.devices import Devices
from offbeat.randomness import Purpose
from offbeat.simulation.records import Stop
from offbeat.simulation.simulator import Simulation
from offbeat.training.evaluation import Evaluator
from offbeat.training.flat_model import FlatModel
from offbeat.training.loop import LoopTrainer
from offbeat.training.models import initial_randomness, mlp, softmax_regression

_DISTRIBUTIONS = {
    "constant": distributions.constant,
    "uniform": distributions.uniform_between,
    "exponential": distributions.exponential,
    "half_normal": distributions.half_normal,
    "lognormal": distributions.lognormal,
    "pareto": distributions.pareto,
}


def build_model(experiment: Experiment, dataset: Dataset, seed: int) -> FlatModel:
    """Return the experiment's model as it is before training."""
    with initial_randomness(seed):
        if isinstance(experiment.model, MlpSection):
            module: nn.Module = mlp(dataset.input_shape, dataset.classes, experiment.model.hidden)
        else:
            module = softmax_regression(dataset.input_shape, dataset.classes)
    return FlatModel(module)


def build_simulation(experiment: Experiment, label: str, seed: int, dataset: Dataset, model: FlatModel) -> Simulation:
    """Return the world in which ``[algorithms.LABEL]`` runs.

    Worlds of one seed hold the same clients, data, devices and initial model, whatever the algorithm.

    Args:
        experiment: The configuration.
        label: Which of its algorithms.
        seed: The run's seed.
        dataset: What is learnt.
        model: The initial model; its values are overwritten.

    Raises:
        OffbeatError: The settings do not fit together, for instance a cohort that is larger than the population.
    """
    population = experiment.population
    try:
        coordinator = Coordinator(
            experiment.algorithm(label),
            model.vector,
            clients=population.clients,
            local=experiment.plan(label),
            seed=seed,
            lease_seconds=experiment.server.lease_seconds or math.inf,
            max_staleness=experiment.server.max_staleness,
        )
    except ValueError as error:
        raise OffbeatError(f"algorithms.{label}: {error}") from None
    trainer = LoopTrainer(
        model,
        loss=cross_entropy,
        inputs=torch.from_numpy(dataset.train_inputs),
        labels=torch.from_numpy(dataset.train_labels),
        shards=_shards(population, dataset, seed),
        seed=seed,
    )
    evaluator = Evaluator(
        model,
        loss=cross_entropy,
        inputs=torch.from_numpy(dataset.test_inputs),
        labels=torch.from_numpy(dataset.test_labels),
    )
    stop = experiment.stop
    return Simulation(
        coordinator,
        _devices(population, seed),
        trainer,
        evaluate=evaluator,
        evaluate_every_seconds=experiment.evaluate.every_seconds,
        stop=Stop(stop.virtual_seconds or math.inf, stop.versions or math.inf, stop.updates or math.inf),
        seed=seed,
    )


def _shards(population: PopulationSection, dataset: Dataset, seed: int) -> list[NDArray[np.int64]]:
    if isinstance(population.partition, DirichletSection):
        return partition.dirichlet(dataset.train_labels, population.clients, population.partition.alpha, seed)
    return partition.iid(dataset.train_labels, population.clients, seed)


def _devices(population: PopulationSection, seed: int) -> Devices:
    def draw(section: DistributionSection, purpose: Purpose, draw: int = 0) -> NDArray[np.float64]:
        parameters = section.model_dump(exclude={"distribution"})
        distribution = _DISTRIBUTIONS[section.distribution]
        return distribution(population.clients, **parameters, seed=seed, purpose=purpose, draw=draw)

    lossy = population.lossy
    return Devices(
        step_seconds=draw(population.step_seconds, Purpose.DEVICE_SPEED),
        down_bytes_per_second=draw(population.down_bytes_per_second, Purpose.BANDWIDTH, 0),
        up_bytes_per_second=draw(population.up_bytes_per_second, Purpose.BANDWIDTH, 1),
        loss_probability=devices.lossy(
            population.clients,
            fraction=lossy.fraction if lossy else 0.0,
            probability=lossy.probability if lossy else 0.0,
            seed=seed,
        ),
    )
