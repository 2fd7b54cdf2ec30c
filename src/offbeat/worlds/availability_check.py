"""The check of a population's availability before a run."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat import units
from offbeat.config.experiment_file import Experiment
from offbeat.population.availability import Availability
from offbeat.simulation.clock import CLOCK_ADVICE, LONGEST_GAP
from offbeat.worlds.population import Population

_RUNS = 10  # of adjacent clients that are looked at
_RUN = 100  # clients in each of them
_NAMES = 10  # clients that a sentence names
_DAY = 86_400.0


def check_first_client(availability: Availability, clients: int, end_seconds: float) -> None:
    """Raise ``OffbeatError`` if no client is available before the end or a year."""
    latest = min(end_seconds, LONGEST_GAP)
    first = math.inf
    for client in range(clients):
        first = min(first, availability.next_available(client, 0.0))
        if first <= latest:
            return
    if first == math.inf:
        raise OffbeatError("population.availability: no client is ever available")
    raise OffbeatError(
        f"population.availability: no client is available within {units.duration(latest)}; the first one comes after "
        f"{first:.10g} seconds: {CLOCK_ADVICE}"
    )


def warnings_of(experiment: Experiment, population: Population) -> list[str]:
    """Return a sentence for whatever is implausible in an experiment's clients."""
    devices, steps = population.devices, experiment.local.plan().steps
    end_seconds = experiment.stop.virtual_seconds or math.inf
    try:
        check_first_client(devices.availability, len(population.shards), end_seconds)
    except OffbeatError as error:
        return [f"{error}."]
    return availability_warnings(devices.availability, steps * devices.step_seconds, end_seconds)


def availability_warnings(
    availability: Availability, local_seconds: NDArray[np.float64], end_seconds: float
) -> list[str]:
    """Return a sentence for each implausible property of up to 1,000 clients.

    Args:
        availability: When clients are available.
        local_seconds: ``(N,)``, the time of a visit's local steps.
        end_seconds: The run's end; infinite if it has none in time.
    """
    clients = looked_at(len(local_seconds))
    latest = min(end_seconds, LONGEST_GAP)
    first = first_seconds(availability, clients)
    comes = first <= latest
    warnings: list[str] = []
    if not comes.all():
        warnings.append(_never(clients[~comes].tolist(), len(clients), latest))
    if not comes.any():
        return warnings
    if first.min() > _DAY:
        warnings.append(f"No client is available in the first {units.duration(first.min())}: {CLOCK_ADVICE}.")
    pairs = zip(clients[comes].tolist(), first[comes].tolist(), strict=True)
    stays = np.array([availability.next_offline(client, seconds) - seconds for client, seconds in pairs])
    if (stays < local_seconds[clients[comes]]).all():
        warnings.append(
            f"No client is available long enough for its local steps when it first comes, {stays.max():.3g} seconds "
            f"at most: {CLOCK_ADVICE}."
        )
    return warnings


def looked_at(clients: int) -> NDArray[np.int64]:
    """Return up to 1,000 clients, evenly.

    They are in blocks, because some availabilities compute adjacent clients together.
    """
    if clients <= _RUNS * _RUN:
        return np.arange(clients)
    starts = np.linspace(0, clients - _RUN, _RUNS).round().astype(int)
    return (starts[:, np.newaxis] + np.arange(_RUN)).ravel()


def first_seconds(availability: Availability, clients: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return when each of the clients is first available; infinity if never."""
    return np.array([availability.next_available(client, 0.0) for client in clients.tolist()], np.float64)


def _never(never: Sequence[int], looked_at: int, seconds: float) -> str:
    names = ", ".join(map(str, never[:_NAMES])) + (", …" if len(never) > _NAMES else "")
    are = "is" if len(never) == 1 else "are"
    return f"{len(never):,} of {looked_at:,} clients {are} never available within {units.duration(seconds)}: {names}."
