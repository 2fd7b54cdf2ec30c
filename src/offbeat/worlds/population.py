"""Clients of one seed, made from ``[population]``: shards and devices."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose
from offbeat_core.tables.validation_errors import error_prefix

from offbeat.config.given_objects import Given
from offbeat.config.population_sections import (
    BandwidthSection,
    ByHourSection,
    ByUserSection,
    DirichletSection,
    FilePartitionSection,
    IidSection,
    MixingSection,
    OneClassSection,
    PhonesSection,
    PopulationSection,
    QuantitySkewSection,
    SpeedSection,
    TraceSection,
)
from offbeat.data.dataset import Dataset
from offbeat.population import partition
from offbeat.population.availability import Always, Availability, HoursOfDay, QuietHours
from offbeat.population.devices import distributions
from offbeat.population.devices.bandwidth_traces import load_traces
from offbeat.population.devices.client_devices import ConstantLink, Devices, Link, lossy, random_traces
from offbeat.population.devices.published_measurements import PHONES, TRACES
from offbeat.population.partition.shards import Shards, hold_out
from offbeat.worlds.given_devices import given_link, given_step_seconds
from offbeat.worlds.population_availability import build_availability, build_quiet_hours, no_classes

# 30 million years a step, or a transfer of a gigabyte: beyond, float64 no longer resolves seconds.
_SLOWEST_STEP = 1e15
_SLOWEST_LINK = 1e-6

_DISTRIBUTIONS = {
    "constant": distributions.constant,
    "uniform": distributions.uniform_between,
    "exponential": distributions.exponential,
    "half_normal": distributions.half_normal,
    "lognormal": distributions.lognormal,
    "pareto": distributions.pareto,
    "file": distributions.from_file,
    "phones": distributions.phones,
}


@dataclass(frozen=True, eq=False)
class Population:
    """The clients of one seed."""

    shards: Shards  # for each client the numbers of its training examples
    devices: Devices
    held_out: Shards  # and of those that it does not train on


def build_population(section: PopulationSection, dataset: Dataset, seed: int) -> Population:
    """Return the clients of a seed."""
    quiet = build_quiet_hours(section, seed)
    with error_prefix("population.partition"):
        shards = _divide(section, dataset, quiet, seed)
    availability = build_availability(section, dataset, shards, quiet, seed)
    shards, held_out = hold_out(shards, section.holdout, seed)
    return Population(shards, _build_devices(section, availability, seed), held_out)


def pool_clients(population: Population, cohort: int) -> Population:
    """Return a population of one client that holds the training examples of all.

    It takes ``cohort`` times as many steps a second as the mean client, is always available and loses nothing.
    """
    clients = len(population.shards)
    if cohort > clients:
        raise ValueError(f"cohort must be at most the number of clients, {clients}, got {cohort}")
    link = ConstantLink(np.array([1e12]))  # the client is the server's machine: transfers take no time
    devices = Devices(
        step_seconds=np.array([population.devices.step_seconds.mean() / cohort]),
        down=link,
        up=link,
        loss_probability=np.zeros(1),
        availability=Always(),
        when_away="pause",
    )
    return Population([np.sort(np.concatenate(population.shards))], devices, population.held_out)


def _divide(section: PopulationSection, dataset: Dataset, quiet: QuietHours | HoursOfDay | None, seed: int) -> Shards:
    """Return for each client the numbers of its training examples, int64 ``(n_i,)``."""
    clients, kind, labels = section.clients, section.partition, dataset.train_labels
    match kind:
        case IidSection():
            return partition.iid(labels, clients, seed)
        case QuantitySkewSection():
            return partition.quantity_skew(labels, clients, kind.sigma, seed)
        case FilePartitionSection():
            return partition.from_file(Path(kind.path), len(labels), clients)
        case ByUserSection():
            if dataset.users is None:
                raise OffbeatError(
                    f"{dataset.name} does not say which user an example is from: use another data set, or give the "
                    "train data an attribute users with a user for each example"
                )
            return partition.by_user(dataset.users, clients, seed)
        case _:
            if dataset.classes is None:
                raise OffbeatError(f"{kind.name} needs {no_classes(dataset)}; use another partition")
    match kind:
        case DirichletSection():
            return partition.dirichlet(labels, clients, kind.alpha, seed)
        case OneClassSection():
            return partition.one_class(labels, clients, seed, kind.sigma or 0.0)
        case MixingSection():
            return partition.mixing(labels, clients, kind.mu, seed)
        case ByHourSection():
            if quiet is None:
                raise OffbeatError(
                    f'by_hour needs availability.name = "quiet_hours", not "{section.availability.name}"'
                )
            return partition.by_hour(labels, quiet.middle_hours, kind.alpha, seed)


def _build_devices(section: PopulationSection, availability: Availability, seed: int) -> Devices:
    some = section.lossy
    return Devices(
        step_seconds=_draw_step_seconds(section, seed),
        down=_build_link(section, "down_bytes_per_second", section.down_bytes_per_second, seed, 0),
        up=_build_link(section, "up_bytes_per_second", section.up_bytes_per_second, seed, 1),
        loss_probability=lossy(
            section.clients,
            fraction=some.fraction if some else 0.0,
            probability=some.probability if some else 0.0,
            seed=seed,
        ),
        availability=availability,
        when_away=section.when_away,
    )


def _build_link(
    section: PopulationSection, key: str, bandwidth: BandwidthSection | Given, seed: int, draw: int
) -> Link:
    with error_prefix(f"population.{key}"):
        if isinstance(bandwidth, Given):
            link = given_link(bandwidth.value, section.clients)
        elif isinstance(bandwidth, TraceSection):
            traces = TRACES[bandwidth.name]() if bandwidth.name else load_traces(Path(bandwidth.path or ""))
            link = random_traces(traces, section.clients, seed=seed, draw=2 * draw)
        else:
            link = ConstantLink(_draw(section, key, bandwidth, seed, Purpose.BANDWIDTH, draw))
        _check_link(link)
    return link


def _check_link(link: Link) -> None:
    """Raise ``OffbeatError`` if a client's link is too slow to count its seconds."""
    rates = link.mean_bytes_per_second()
    slowest = int(rates.argmin())
    if rates[slowest] < _SLOWEST_LINK:
        raise OffbeatError(f"client {slowest} has {rates[slowest]:g}, but needs at least {_SLOWEST_LINK:g}")


def _draw_step_seconds(section: PopulationSection, seed: int) -> NDArray[np.float64]:
    with error_prefix("population.step_seconds"):
        if isinstance(section.step_seconds, Given):
            values = given_step_seconds(section.step_seconds.value, section.clients)
        else:
            values = _draw(section, "step_seconds", section.step_seconds, seed, Purpose.DEVICE_SPEED)
        slowest = int(values.argmax())
        if values[slowest] > _SLOWEST_STEP:
            raise OffbeatError(f"client {slowest} has {values[slowest]:g}, but at most {_SLOWEST_STEP:g} is allowed")
    return values


def _draw(
    section: PopulationSection,
    key: str,
    distribution: SpeedSection | BandwidthSection,
    seed: int,
    purpose: Purpose,
    draw: int = 0,
) -> NDArray[np.float64]:
    parameters = distribution.model_dump(exclude={"distribution", "name"})
    if isinstance(distribution, PhonesSection) and distribution.name:
        parameters["path"] = PHONES[distribution.name]()
    elif "path" in parameters:
        parameters["path"] = Path(parameters["path"])
    if distribution.distribution == "file":
        parameters["column"] = parameters["column"] or key
    function = _DISTRIBUTIONS[distribution.distribution]
    return function(section.clients, **parameters, seed=seed, purpose=purpose, draw=draw)
