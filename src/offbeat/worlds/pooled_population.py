"""The world of sequential SGD: everybody's data on one machine."""

import numpy as np

from offbeat.population.availability import Always
from offbeat.population.devices.devices import Devices
from offbeat.population.devices.links import ConstantLink
from offbeat.worlds.population import Population


def pooled(population: Population, cohort: int) -> Population:
    """Return one client that holds what all clients hold, in place of them.

    It takes ``cohort`` times as many steps a second as they do on average, is always there and never loses anything.

    Raises:
        ValueError: The cohort is larger than the population.
    """
    clients = len(population.shards)
    if cohort > clients:
        raise ValueError(f"cohort must be at most the number of clients, {clients}, got {cohort}")
    link = ConstantLink(np.array([1e12]))  # nothing is sent over it
    devices = Devices(
        step_seconds=np.array([population.devices.step_seconds.mean() / cohort]),
        down=link,
        up=link,
        loss_probability=np.zeros(1),
        availability=Always(),
        when_away="pause",
    )
    return Population([np.sort(np.concatenate(population.shards))], devices)
