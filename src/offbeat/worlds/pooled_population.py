"""One client with the data of all, for sequential SGD."""

import numpy as np

from offbeat.population.availability import Always
from offbeat.population.devices.devices import Devices
from offbeat.population.devices.links import ConstantLink
from offbeat.worlds.population import Population


def pool_clients(population: Population, cohort: int) -> Population:
    """Return a population of one client that holds the examples of all.

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
    return Population([np.sort(np.concatenate(population.shards))], devices)
