"""The clients' devices: speed, links, losses and availability."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose

from offbeat.population.availability import Availability
from offbeat.population.devices.links import Link
from offbeat.uniform_numbers import number, uniform

WhenAway = Literal["pause", "lose"]


@dataclass(frozen=True, eq=False)
class Devices:
    """The devices of N clients.

    Attributes:
        step_seconds: ``(N,)`` float64, duration of a local step.
        down: The links for downloads.
        up: The links for uploads.
        loss_probability: ``(N,)`` float64, probability that a visit's update is lost.
        availability: When each client is available.
        when_away: Whether a visit pauses or is lost when its client goes offline.
    """

    step_seconds: NDArray[np.float64]
    down: Link
    up: Link
    loss_probability: NDArray[np.float64]
    availability: Availability
    when_away: WhenAway

    def visit_is_lost(self, seed: int, client: int, visit: int) -> bool:
        """Return whether the update of the client's visit 0, 1, … is lost."""
        return number(seed, Purpose.LOSS, client, visit) < self.loss_probability[client].item()


def lossy(clients: int, *, fraction: float, probability: float, seed: int) -> NDArray[np.float64]:
    """Return ``probability`` for round(fraction · N) random clients, else 0, ``(N,)``.

    Raises:
        OffbeatError: ``fraction`` or ``probability`` is not in [0, 1].
    """
    for name, share in (("fraction", fraction), ("probability", probability)):
        if not 0 <= share <= 1:
            raise OffbeatError(f"{name} is {share}, but must be between 0 and 1")
    order = np.argsort(uniform(seed, Purpose.LOSSY_CLIENTS, client=np.arange(clients)), kind="stable")
    probabilities = np.zeros(clients)
    probabilities[order[: round(fraction * clients)]] = probability
    return probabilities
