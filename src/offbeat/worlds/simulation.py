"""The simulation of one run, made from its configuration."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.tables.validation_errors import error_prefix
from torch import Tensor

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.config.experiment_file import Experiment
from offbeat.config.experiment_sections import FlowerSection
from offbeat.config.given_objects import Given
from offbeat.config.import_path import load_object
from offbeat.config.measured_metrics import early_stop, lower_is_better
from offbeat.coordinator import Coordinator
from offbeat.coordinator.participation_limits import Participation
from offbeat.data.dataset import Dataset
from offbeat.early_stop import EarlyStop
from offbeat.model_inputs import name_inputs
from offbeat.simulation.evaluations import Evaluate, EvaluationsByClients
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.totals import Stop
from offbeat.training.trainers.backend import Backend
from offbeat.training.trainers.choice import make_trainer
from offbeat.training.trainers.distributed.ray_cluster import DEFAULT_CLUSTER, RayCluster
from offbeat.training.trainers.trainer import Trainer
from offbeat.training.workload import Workload
from offbeat.worlds.algorithm_setup import dry_run, guard_pattern, wrap_buffer
from offbeat.worlds.availability_check import check_first_client
from offbeat.worlds.population import Population, build_population, pool_clients
from offbeat.worlds.simulated_privacy import protect, with_epsilon
from offbeat.worlds.workload import build_workload, fits_on_device
from offbeat.worlds.workload_check import check_workload


@dataclass(frozen=True, kw_only=True, eq=False)
class World:
    """One simulated run: its settings, and the objects made from them or given.

    The algorithm is not started.
    """

    experiment: Experiment
    label: str
    seed: int
    dataset: Dataset
    algorithm: Algorithm
    population: Population
    workload: Workload
    workers: int = 1
    cluster: RayCluster = DEFAULT_CLUSTER

    def build(self) -> Simulation:
        """Check that the parts fit together, and return their simulation.

        Raises ``ValueError`` if the algorithm's settings do not fit the rest, and ``OffbeatError`` for other misfits.
        """
        experiment, population, algorithm = self.experiment, self.population, self.algorithm
        plan, stop, every = experiment.plan(self.label), experiment.stop, experiment.evaluate
        population = population_of(algorithm, population)
        check_first_client(population.devices.availability, len(population.shards), stop.virtual_seconds or math.inf)
        guard_pattern(algorithm)
        wrap_buffer(algorithm, experiment.server)
        examples = torch.tensor([len(shard) for shard in population.shards], dtype=torch.float64)
        workload = self._placed(replace(self.workload, shards=population.shards, held_out=population.held_out))
        model = workload.model.vector
        participation, masked, evaluate = None, None, self._evaluate(workload)
        privacy = experiment.privacy_of(self.label)
        if privacy is not None:
            participation, masked = protect(
                privacy,
                algorithm,
                clients=len(examples),
                length=len(model),
                versions=stop.versions or math.inf,
                seed=self.seed,
            )
            evaluate = with_epsilon(evaluate, privacy, participation)
        self._check(workload, examples, plan)
        return Simulation(
            self._coordinator(model, examples, plan, participation),
            population.devices,
            self._trainer(workload, plan),
            evaluate=evaluate,
            evaluate_every_seconds=every.every_seconds or math.inf,
            evaluate_every_versions=every.every_versions or math.inf,
            stop=Stop(stop.virtual_seconds or math.inf, stop.versions or math.inf, stop.updates or math.inf),
            seed=self.seed,
            masked=masked,
            clients=self._client_evaluations(workload),
            early_stop=self._early_stop(),
            length=self._length(workload),
        )

    def _evaluate(self, workload: Workload) -> Evaluate:
        return workload.evaluator()

    def _early_stop(self) -> EarlyStop | None:
        experiment = self.experiment
        return early_stop(experiment.stop, experiment.evaluate, experiment.metrics)

    def _length(self, workload: Workload) -> int:
        """Return the number of parameters, which decides the bytes of transfers."""
        return len(workload.model.vector)

    def _placed(self, workload: Workload) -> Workload:
        """Return the workload on the accelerator, with its data if they fit there."""
        accelerator = self.experiment.accelerator()
        with_data = fits_on_device(workload, accelerator, self.experiment.data.on_device)
        return workload.to(accelerator, with_data=with_data)

    def _check(self, workload: Workload, examples: Tensor, plan: LocalPlan) -> None:
        dry_run(self.algorithm, workload.model.vector, examples, plan)
        check_workload(workload, plan, self.dataset)

    def _client_evaluations(self, workload: Workload) -> EvaluationsByClients | None:
        evaluate = self.experiment.evaluate
        if evaluate.on_clients is None:
            return None
        metrics = list(workload.objective.metrics)
        return EvaluationsByClients(
            workload.measure_on_client,
            self.population.devices.availability,
            [len(shard) for shard in self.population.held_out],
            number=evaluate.on_clients,
            metrics=metrics,
            lower_is_better=lower_is_better(evaluate, metrics),
            seed=self.seed,
        )

    def _coordinator(
        self, model: Tensor, examples: Tensor, plan: LocalPlan, participation: Participation | None
    ) -> Coordinator:
        server = self.experiment.server
        return Coordinator(
            self.algorithm,
            model,
            clients=len(examples),
            local=plan,
            seed=self.seed,
            lease_seconds=server.lease_seconds or math.inf,
            max_staleness=server.max_staleness,
            data_weights=examples,
            examples=[int(number) for number in examples],
            participation=participation,
        )

    def _trainer(self, workload: Workload, plan: LocalPlan) -> Trainer:
        trainer, flower = self.experiment.trainer, self.experiment.flower
        if flower is not None:
            return Trainer(build_flower_backend(flower, workload, self.algorithm, plan, len(workload.shards)))
        # Data on disk may not fit into memory, so they are not copied there for other processes.
        is_on_disk = any(isinstance(part, np.memmap) for part in name_inputs("", self.dataset.train_inputs).values())
        workers = 1 if is_on_disk and trainer not in ("processes", "ray") else self.workers
        at_work = self.algorithm.slots()  # which its coordinator has started
        return make_trainer(trainer, workload, plan=plan, at_work=at_work, workers=workers, cluster=self.cluster)


def build_simulation(
    experiment: Experiment,
    label: str,
    seed: int,
    dataset: Dataset,
    *,
    population: Population | None = None,
    workers: int = 1,
    cluster: RayCluster = DEFAULT_CLUSTER,
    kind: type[World] = World,
) -> Simulation:
    """Return the simulation in which ``[algorithms.LABEL]`` runs.

    All algorithms of one seed get the same clients, data, devices and initial model. ``population`` is that of the
    seed, if it has been built. At most ``workers`` processes of this machine train the clients, or ``cluster`` with the
    trainer ``ray``. ``kind`` is the world's class.
    """
    population = population or build_population(experiment.population, dataset, seed)
    try:
        return kind(
            experiment=experiment,
            label=label,
            seed=seed,
            dataset=dataset,
            algorithm=experiment.algorithm(label, seed),
            population=population,
            workload=build_workload(experiment, dataset, population.shards, seed),
            workers=workers,
            cluster=cluster,
        ).build()
    except ValueError as error:
        is_given = isinstance(experiment.algorithms[label].algorithm, Given)
        raise OffbeatError(f"{'' if is_given else f'algorithms.{label}: '}{error}") from None


def population_of(algorithm: Algorithm, population: Population) -> Population:
    """Return an algorithm's clients: all, or one that holds the data of all."""
    return pool_clients(population, getattr(algorithm, "cohort", 1)) if algorithm.pooled else population


def build_flower_backend(
    section: FlowerSection, workload: Workload, algorithm: Algorithm, plan: LocalPlan, clients: int
) -> Backend:
    """Return the backend that calls the app.

    Raises:
        OffbeatError: Flower is not installed, the app cannot be loaded, or the algorithm needs what no app can do.
    """
    if algorithm.corrects_gradients:
        raise OffbeatError(f"{algorithm.name} corrects each local gradient: that is not possible with Flower's apps")
    if algorithm.weighs_all_clients:
        raise OffbeatError(
            f"{algorithm.name} weighs all clients by their examples, which only the app knows: set weighting = "
            '"uniform"'
        )
    if plan.steps_by is not None:
        raise OffbeatError(
            "local: only the app knows how many examples a client holds: set local.steps to a number, or epochs in "
            "flower.run_config if the app has such a setting"
        )
    try:
        from offbeat.flower.app_config import read_run_config
        from offbeat.flower.backend import FlowerBackend
        from offbeat.flower.client_app import FlowerApp
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("flwr"):
            raise
        raise OffbeatError("[flower] needs Flower: pip install 'offbeat[flower]'") from None
    with error_prefix("flower.app"):
        app = FlowerApp(
            load_object(section.app),
            run_config=read_run_config(Path.cwd(), None) | section.run_config,
            node_config={"num-partitions": clients},
        )
    return FlowerBackend(workload, app, needs_loss=algorithm.needs_loss)
