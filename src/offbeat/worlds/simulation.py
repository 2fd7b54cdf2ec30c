"""The simulation of one run, made from its configuration."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from torch import Tensor

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.config.experiment_file import Experiment
from offbeat.config.given_objects import Given
from offbeat.config.measured_metrics import early_stop, lower_is_better
from offbeat.coordinator import Coordinator
from offbeat.coordinator.participation_limits import Participation
from offbeat.data.dataset import Dataset
from offbeat.model_inputs import name_inputs
from offbeat.simulation.evaluations import EvaluationsByClients
from offbeat.simulation.simulator import Simulation
from offbeat.simulation.totals import Stop
from offbeat.training.augmentation import check_augmentation
from offbeat.training.fit_check import check_fit
from offbeat.training.target_check import number_of_targets
from offbeat.training.trainers.choice import make_trainer
from offbeat.training.trainers.distributed.ray_cluster import DEFAULT_CLUSTER, RayCluster
from offbeat.training.trainers.trainer import Trainer
from offbeat.training.workload import Workload
from offbeat.worlds.algorithm_setup import dry_run, guard_pattern, wrap_buffer
from offbeat.worlds.availability_check import check_first_client
from offbeat.worlds.data_placement import fits_on_device
from offbeat.worlds.flower_backend import build_flower_backend
from offbeat.worlds.population import Population, build_population, pool_clients
from offbeat.worlds.simulated_privacy import protect, with_epsilon
from offbeat.worlds.workload import build_workload


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
        if algorithm.pooled:
            population = pool_clients(population, getattr(algorithm, "cohort", 1))
        check_first_client(population.devices.availability, len(population.shards), stop.virtual_seconds or math.inf)
        guard_pattern(algorithm)
        wrap_buffer(algorithm, experiment.server)
        examples = torch.tensor([len(shard) for shard in population.shards], dtype=torch.float64)
        workload = self._placed(replace(self.workload, shards=population.shards, held_out=population.held_out))
        model = workload.model.vector
        participation, masked, evaluate = None, None, workload.evaluator()
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
        dry_run(algorithm, model, examples, plan)
        self._check_fit(workload, plan)
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
            early_stop=early_stop(stop, every, experiment.metrics),
        )

    def _placed(self, workload: Workload) -> Workload:
        """Return the workload on the accelerator, with its data if they fit there."""
        accelerator = self.experiment.accelerator()
        with_data = fits_on_device(workload, accelerator, self.experiment.data.on_device)
        return workload.to(accelerator, with_data=with_data)

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

    def _check_fit(self, workload: Workload, plan: LocalPlan) -> None:
        check_augmentation(workload.augmentation, workload.train.inputs)
        # The smallest minibatch of all clients: a model that takes it takes the others.
        loss, parts = workload.objective.loss, {"train": workload.train.labels}
        if workload.test is not None:
            parts["test"] = workload.test.labels
        classes = number_of_targets(loss, parts) or self.dataset.classes
        sizes = {number: min(plan.of(number).minibatch_sizes(number)) for number in {*map(len, workload.shards)}}
        client = min(range(len(workload.shards)), key=lambda client: sizes[workload.examples(client)])
        smallest = workload.shards[client][: sizes[workload.examples(client)]]
        try:
            self._try_minibatch(workload, smallest, classes)
        except OffbeatError as error:
            if len(smallest) > 1 or not self._takes_two(workload, int(smallest[0]), classes):
                raise
            if workload.examples(client) == 1:
                why, remedy = f"client {client} holds one example", "use another partition"
            elif plan.batch_size == 1:
                why, remedy = "local.batch_size is 1", "make it larger"
            else:
                why, remedy = f"an epoch of client {client} ends with one example", "change local.batch_size"
            raise OffbeatError(
                f"{why}, but the model or the loss needs minibatches of at least two: {remedy}, or GroupNorm in place "
                f"of BatchNorm ({error})"
            ) from error.__cause__

    def _takes_two(self, workload: Workload, example: int, classes: int | None) -> bool:
        """Return whether a model that refuses a minibatch of one example accepts two."""
        others = np.concatenate(workload.shards)
        try:
            self._try_minibatch(workload, np.array([example, *others[others != example][:1]]), classes)
        except OffbeatError:
            return False
        return True

    def _try_minibatch(self, workload: Workload, chosen: NDArray[np.int64], classes: int | None) -> None:
        check_fit(
            workload.model,
            workload.objective.loss,
            *workload.minibatch(torch.from_numpy(chosen)),
            classes=classes,
            tokens=self.dataset.tokens,
            accelerator=workload.accelerator,
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
        typical = plan.of(int(np.median([len(shard) for shard in workload.shards])))
        at_work = self.algorithm.slots()  # which its coordinator has started
        return make_trainer(trainer, workload, plan=typical, at_work=at_work, workers=workers, cluster=self.cluster)


def build_simulation(
    experiment: Experiment,
    label: str,
    seed: int,
    dataset: Dataset,
    *,
    population: Population | None = None,
    workers: int = 1,
    cluster: RayCluster = DEFAULT_CLUSTER,
) -> Simulation:
    """Return the simulation in which ``[algorithms.LABEL]`` runs.

    All algorithms of one seed get the same clients, data, devices and initial model. ``population`` is that of the
    seed, if it has been built. At most ``workers`` processes
    of this machine train the clients, or ``cluster`` with the trainer ``ray``.
    """
    population = population or build_population(experiment.population, dataset, seed)
    try:
        return World(
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
