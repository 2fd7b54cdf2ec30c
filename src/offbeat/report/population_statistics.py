"""Statistics of a population: examples, labels, speeds and availability."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from offbeat_core.compression.compressor import uncompressed_bytes
from offbeat_core.errors import OffbeatError
from offbeat_core.sent_update import upload_bytes

from offbeat.algorithms import LocalPlan
from offbeat.config.experiment_file import Experiment
from offbeat.data.dataset import Dataset
from offbeat.population.availability import Availability
from offbeat.worlds.availability_check import first_seconds, looked_at, warnings_of
from offbeat.worlds.population import build_population
from offbeat.worlds.workload import build_model

TIMES = 500  # at which presence is computed
_DAY = 86_400.0


@dataclass(frozen=True, eq=False)
class Presence:
    """Availability of some clients at some times.

    Attributes:
        clients: int64 ``(n,)``, the clients.
        times: ``(T,)``, ascending; seconds.
        stays: ``(n, T)``, how long each client then stays available; 0 if it is offline, inf if it never leaves.
    """

    clients: NDArray[np.int64]
    times: NDArray[np.float64]
    stays: NDArray[np.float64]

    @property
    def is_available(self) -> NDArray[np.bool_]:
        """The availability of each client at each time, ``(n, T)``."""
        return self.stays > 0

    @property
    def share(self) -> NDArray[np.float64]:
        """The share of available clients at each time, ``(T,)``."""
        return self.is_available.mean(axis=0)


@dataclass(frozen=True, eq=False)
class PopulationStatistics:
    """Statistics of the clients of one seed.

    Attributes:
        title: The experiment's name.
        seed: The seed of the clients.
        label_counts: ``(N, classes)``, each client's training examples of each class; None without classes.
        examples: ``(N,)``, each client's training examples.
        steps: ``(N,)``, each client's local steps of a visit.
        step_seconds: ``(N,)``, the time of a local step.
        down_bytes_per_second: ``(N,)``, the mean over time.
        up_bytes_per_second: ``(N,)``, the mean over time.
        model_bytes: The size of a download.
        upload_bytes: The size of an upload, compressed as ``[local]`` says.
        loss_probability: ``(N,)``, the probability that a visit is lost.
        availability: When clients are available.
        horizon_seconds: The end of the considered time; finite.
        warnings: A sentence for each implausible property.
    """

    title: str
    seed: int
    label_counts: NDArray[np.int64] | None
    examples: NDArray[np.int64]
    steps: NDArray[np.int64]
    step_seconds: NDArray[np.float64]
    down_bytes_per_second: NDArray[np.float64]
    up_bytes_per_second: NDArray[np.float64]
    model_bytes: int
    upload_bytes: int
    loss_probability: NDArray[np.float64]
    availability: Availability
    horizon_seconds: float
    warnings: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not 0 < self.horizon_seconds < math.inf:
            raise ValueError(f"horizon_seconds is {self.horizon_seconds}, but must be above 0 and finite")

    @property
    def clients(self) -> int:
        """The number of clients, N."""
        return len(self.examples)

    @cached_property
    def visit_parts(self) -> dict[str, NDArray[np.float64]]:
        """The duration of each part of a client's visit, ``(N,)`` each; seconds."""
        return {
            "download": self.model_bytes / self.down_bytes_per_second,
            "local steps": self.steps * self.step_seconds,
            "upload": self.upload_bytes / self.up_bytes_per_second,
        }

    @cached_property
    def visit_seconds(self) -> NDArray[np.float64]:
        """The duration of a client's visit, ``(N,)``; seconds."""
        return np.sum(list(self.visit_parts.values()), axis=0)

    @cached_property
    def presence(self) -> Presence:
        """The availability of up to 1,000 clients at 500 times, evenly over the horizon."""
        clients = looked_at(self.clients)
        times = np.linspace(0, self.horizon_seconds, 2 * TIMES + 1)[1::2]  # the centres of 500 intervals
        first = first_seconds(self.availability, clients)
        return Presence(clients, times, _stays(self.availability, clients, times, first))


def population_statistics(experiment: Experiment, dataset: Dataset) -> PopulationStatistics:
    """Return statistics of the first seed until the run's end, or of one day."""
    seed = experiment.seeds[0]
    population = build_population(experiment.population, dataset, seed)
    counts = None
    if dataset.classes is not None:
        labels = [np.bincount(dataset.train_labels[shard], minlength=dataset.classes) for shard in population.shards]
        counts = np.array(labels, np.int64)
    devices, plan = population.devices, experiment.local.plan()
    examples = np.array([len(shard) for shard in population.shards], np.int64)
    parameters = build_model(experiment.model, dataset, seed).vector.numel()
    return PopulationStatistics(
        title=experiment.name,
        seed=seed,
        label_counts=counts,
        examples=examples,
        steps=_steps(plan, examples),
        step_seconds=devices.step_seconds,
        down_bytes_per_second=devices.down.mean_bytes_per_second(),
        up_bytes_per_second=devices.up.mean_bytes_per_second(),
        model_bytes=uncompressed_bytes(parameters),
        upload_bytes=upload_bytes(plan, parameters),
        loss_probability=devices.loss_probability,
        availability=devices.availability,
        horizon_seconds=experiment.stop.virtual_seconds or _DAY,
        warnings=warnings_of(experiment, population),
    )


def _steps(plan: LocalPlan, examples: NDArray[np.int64]) -> NDArray[np.int64]:
    try:
        return np.array([plan.of(number).steps for number in examples.tolist()], np.int64)
    except ValueError as error:
        raise OffbeatError(str(error)) from None


def evenly(items: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Return at most ``most`` evenly spaced items, including first and last."""
    if len(items) <= most:
        return items
    return items[np.linspace(0, len(items) - 1, most).round().astype(int)]


def effective_labels(label_counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each client's effective number of labels, ``(N,)``: exp(−Σ p ln p).

    This is the Hill number of order 1 (Jost, "Entropy and diversity", Oikos 2006): 1 for one label, the number of
    classes for equal shares of all, 0 for a client without examples. ``label_counts`` is ``(N, classes)``.
    """
    total = label_counts.sum(axis=1, keepdims=True)
    share = label_counts / np.maximum(total, 1)
    logarithm = np.log(share, out=np.zeros_like(share), where=share > 0)
    return np.where(total[:, 0] > 0, np.exp(-(share * logarithm).sum(axis=1)), 0.0)


def _stays(
    availability: Availability, clients: NDArray[np.int64], times: NDArray[np.float64], first: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how long each client stays available from each time on, ``(n, T)``."""
    stays = np.zeros((len(clients), len(times)))
    leaves = np.zeros(len(clients))  # when each client leaves or, if it is offline, has left
    known = first.copy()  # the time until which the last answer holds
    # Time is the outer loop, as in a run: availabilities forget the past.
    for column, now in enumerate(times.tolist()):
        for row in np.flatnonzero(known <= now).tolist():
            client = int(clients[row])
            known[row] = availability.next_available(client, now)
            if known[row] == now:
                known[row] = leaves[row] = availability.next_offline(client, now)
        stays[:, column] = np.maximum(leaves - now, 0)
    return stays
