"""The simulation of one run, made from its configuration."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import EvaluateSection, ServerSection, StopSection
from offbeat.coordinator import Coordinator
from offbeat.errors import OffbeatError
from offbeat.simulation.records import Stop
from offbeat.simulation.simulator import Simulation
from offbeat.training.augmentation import check_augmentation
from offbeat.training.fit_check import check_fit
from offbeat.training.trainers.choice import TrainerName, make_trainer
from offbeat.training.trainers.trainer import Trainer
from offbeat.worlds.buffer_wrappers import wrap_buffer
from offbeat.worlds.dry_run import dry_run
from offbeat.worlds.pattern_guard import guard_pattern
from offbeat.worlds.population import Population, build_population, pool_clients
from offbeat.worlds.workload import Workload, as_tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """The parts of one simulated run, whose algorithm is not started."""

    algorithm: Algorithm
    plan: LocalPlan
    population: Population
    workload: Workload
    server: ServerSection
    stop: StopSection
    evaluate: EvaluateSection
    trainer: TrainerName
    seed: int
    workers: int = 1

    def build(self) -> Simulation:
        """Check that the parts fit together, and return their simulation.

        Raises ``ValueError`` if the algorithm's settings do not fit the rest, and ``OffbeatError`` for other misfits.
        """
        population, algorithm = self.population, self.algorithm
        if algorithm.pooled:
            population = pool_clients(population, getattr(algorithm, "cohort", 1))
        guard_pattern(algorithm)
        wrap_buffer(algorithm, self.server)
        examples = torch.tensor([len(shard) for shard in population.shards], dtype=torch.float64)
        dry_run(algorithm, self.workload.model.vector, examples, self.plan)
        self._check_workload(population.shards)
        return Simulation(
            self._coordinator(examples),
            population.devices,
            self._trainer(population.shards),
            evaluate=self.workload.evaluator(self.seed),
            evaluate_every_seconds=self.evaluate.every_seconds or math.inf,
            evaluate_every_versions=self.evaluate.every_versions or math.inf,
            stop=Stop(
                self.stop.virtual_seconds or math.inf, self.stop.versions or math.inf, self.stop.updates or math.inf
            ),
            seed=self.seed,
        )

    def _check_workload(self, shards: Sequence[NDArray[np.int64]]) -> None:
        workload, dataset = self.workload, self.workload.dataset
        inputs, labels = as_tensor(dataset.train_inputs), as_tensor(dataset.train_labels)
        check_augmentation(workload.augmentation, inputs)
        # The smallest minibatch of all clients: a model that takes it takes the others.
        smallest = min(shards, key=len)[: self.plan.batch_size]
        check_fit(
            workload.model,
            workload.objective.loss,
            inputs[smallest],
            labels[smallest],
            classes=dataset.classes,
            tokens=dataset.tokens,
        )

    def _coordinator(self, examples: Tensor) -> Coordinator:
        return Coordinator(
            self.algorithm,
            self.workload.model.vector,
            clients=len(examples),
            local=self.plan,
            seed=self.seed,
            lease_seconds=self.server.lease_seconds or math.inf,
            max_staleness=self.server.max_staleness,
            data_weights=examples,
        )

    def _trainer(self, shards: Sequence[NDArray[np.int64]]) -> Trainer:
        workload, dataset = self.workload, self.workload.dataset
        # Data on disk may not fit into memory, so they are not copied there for other processes.
        is_on_disk = isinstance(dataset.train_inputs, np.memmap)
        return make_trainer(
            self.trainer,
            workload.model,
            plan=self.plan,
            loss=workload.objective.loss,
            inputs=as_tensor(dataset.train_inputs),
            labels=as_tensor(dataset.train_labels),
            shards=shards,
            seed=self.seed,
            augmentation=workload.augmentation,
            workers=1 if is_on_disk and self.trainer != "processes" else self.workers,
        )


def build_simulation(
    experiment: Experiment, label: str, seed: int, workload: Workload, *, workers: int = 1
) -> Simulation:
    """Return the simulation in which ``[algorithms.LABEL]`` runs.

    All algorithms of one seed get the same clients, data, devices and initial model. At most ``workers`` processes
    train the clients.
    """
    population = build_population(experiment.population, workload.dataset, seed)
    try:
        return World(
            algorithm=experiment.algorithm(label),
            plan=experiment.plan(label),
            population=population,
            workload=workload,
            server=experiment.server,
            stop=experiment.stop,
            evaluate=experiment.evaluate,
            trainer=experiment.trainer,
            seed=seed,
            workers=workers,
        ).build()
    except ValueError as error:
        raise OffbeatError(f"algorithms.{label}: {error}") from None
