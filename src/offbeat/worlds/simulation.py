"""The simulation of one run, made from its configuration."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.config.client_evaluation import lower_is_better
from offbeat.config.early_stop import early_stop
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import DataOnDevice, EvaluateSection, ServerSection, StopSection
from offbeat.config.flower_section import FlowerSection
from offbeat.config.privacy_section import PrivacySection
from offbeat.coordinator import Coordinator
from offbeat.coordinator.participation import Participation
from offbeat.data.dataset import Dataset
from offbeat.early_stop import EarlyStop
from offbeat.errors import OffbeatError
from offbeat.inputs import name_inputs
from offbeat.simulation.client_evaluations import ClientEvaluations
from offbeat.simulation.records import Stop
from offbeat.simulation.simulator import Simulation
from offbeat.training.accelerator import Accelerator
from offbeat.training.augmentation import check_augmentation
from offbeat.training.fit_check import check_fit
from offbeat.training.trainers.choice import make_trainer
from offbeat.training.trainers.distributed.ray_cluster import DEFAULT_CLUSTER, RayCluster
from offbeat.training.trainers.names import TrainerName
from offbeat.training.trainers.trainer import Trainer
from offbeat.training.workload import Workload
from offbeat.worlds.buffer_wrappers import wrap_buffer
from offbeat.worlds.data_placement import fits_on_device
from offbeat.worlds.dry_run import dry_run
from offbeat.worlds.flower_trainer import build_flower_trainer
from offbeat.worlds.pattern_guard import guard_pattern
from offbeat.worlds.population import Population, build_population, pool_clients
from offbeat.worlds.simulated_privacy import protect, with_epsilon
from offbeat.worlds.workload import build_workload


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """The parts of one simulated run, whose algorithm is not started."""

    algorithm: Algorithm
    plan: LocalPlan
    dataset: Dataset
    population: Population
    workload: Workload
    server: ServerSection
    stop: StopSection
    evaluate: EvaluateSection
    trainer: TrainerName
    seed: int
    accelerator: Accelerator
    privacy: PrivacySection | None = None
    early_stop: EarlyStop | None = None
    data_on_device: DataOnDevice = "auto"
    workers: int = 1
    cluster: RayCluster = DEFAULT_CLUSTER
    flower: FlowerSection | None = None

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
        workload = self._placed(replace(self.workload, shards=population.shards, held_out=population.held_out))
        model = workload.model.vector
        participation, masked, evaluate = None, None, workload.evaluator()
        if self.privacy is not None:
            participation, masked = protect(
                self.privacy,
                algorithm,
                clients=len(examples),
                length=len(model),
                versions=self.stop.versions or math.inf,
                seed=self.seed,
            )
            evaluate = with_epsilon(evaluate, self.privacy, participation)
        dry_run(algorithm, model, examples, self.plan)
        self._check_fit(workload)
        return Simulation(
            self._coordinator(model, examples, participation),
            population.devices,
            self._trainer(workload),
            evaluate=evaluate,
            evaluate_every_seconds=self.evaluate.every_seconds or math.inf,
            evaluate_every_versions=self.evaluate.every_versions or math.inf,
            stop=Stop(
                self.stop.virtual_seconds or math.inf, self.stop.versions or math.inf, self.stop.updates or math.inf
            ),
            seed=self.seed,
            masked=masked,
            clients=self._client_evaluations(workload),
            early_stop=self.early_stop,
        )

    def _client_evaluations(self, workload: Workload) -> ClientEvaluations | None:
        if self.evaluate.on_clients is None:
            return None
        metrics = list(workload.objective.metrics)
        return ClientEvaluations(
            workload.measure_on_client,
            self.population.devices.availability,
            [len(shard) for shard in self.population.held_out],
            number=self.evaluate.on_clients,
            metrics=metrics,
            lower_is_better=lower_is_better(self.evaluate, metrics),
            seed=self.seed,
        )

    def _placed(self, workload: Workload) -> Workload:
        """Return the workload on the accelerator, with its data if they fit there."""
        return workload.to(self.accelerator, with_data=fits_on_device(workload, self.accelerator, self.data_on_device))

    def _check_fit(self, workload: Workload) -> None:
        check_augmentation(workload.augmentation, workload.train.inputs)
        # The smallest minibatch of all clients: a model that takes it takes the others.
        smallest = torch.from_numpy(min(workload.shards, key=len)[: self.plan.batch_size])
        check_fit(
            workload.model,
            workload.objective.loss,
            *workload.minibatch(smallest),
            classes=self.dataset.classes,
            tokens=self.dataset.tokens,
            accelerator=workload.accelerator,
        )

    def _coordinator(self, model: Tensor, examples: Tensor, participation: Participation | None) -> Coordinator:
        return Coordinator(
            self.algorithm,
            model,
            clients=len(examples),
            local=self.plan,
            seed=self.seed,
            lease_seconds=self.server.lease_seconds or math.inf,
            max_staleness=self.server.max_staleness,
            data_weights=examples,
            participation=participation,
        )

    def _trainer(self, workload: Workload) -> Trainer:
        if self.flower is not None:
            return build_flower_trainer(self.flower, workload, self.algorithm, len(workload.shards))
        # Data on disk may not fit into memory, so they are not copied there for other processes.
        is_on_disk = any(isinstance(part, np.memmap) for part in name_inputs("", self.dataset.train_inputs).values())
        workers = 1 if is_on_disk and self.trainer not in ("processes", "ray") else self.workers
        return make_trainer(self.trainer, workload, plan=self.plan, workers=workers, cluster=self.cluster)


def build_simulation(
    experiment: Experiment,
    label: str,
    seed: int,
    dataset: Dataset,
    *,
    workers: int = 1,
    cluster: RayCluster = DEFAULT_CLUSTER,
) -> Simulation:
    """Return the simulation in which ``[algorithms.LABEL]`` runs.

    All algorithms of one seed get the same clients, data, devices and initial model. At most ``workers`` processes
    of this machine train the clients, or ``cluster`` with the trainer ``ray``.
    """
    population = build_population(experiment.population, dataset, seed)
    try:
        return World(
            algorithm=experiment.algorithm(label),
            plan=experiment.plan(label),
            dataset=dataset,
            population=population,
            workload=build_workload(experiment, dataset, population.shards, seed),
            server=experiment.server,
            privacy=experiment.privacy_of(label),
            stop=experiment.stop,
            early_stop=early_stop(experiment.stop, experiment.evaluate, experiment.metrics),
            evaluate=experiment.evaluate,
            trainer=experiment.trainer,
            seed=seed,
            accelerator=experiment.accelerator(),
            data_on_device=experiment.data.on_device,
            workers=workers,
            cluster=cluster,
            flower=experiment.flower,
        ).build()
    except ValueError as error:
        raise OffbeatError(f"algorithms.{label}: {error}") from None
