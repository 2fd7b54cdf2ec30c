"""How fast and how reliable each client's device is, and when it is there."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.population.availability import Availability
from offbeat.population.devices.links import Link
from offbeat.randomness import Purpose, number, uniform

WhenAway = Literal["pause", "lose"]


@dataclass(frozen=True, eq=False)
class Devices:
    """The devices of N clients.

    Attributes:
        step_seconds: ``(N,)`` float64, how long one local step takes.
        down: How fast the clients download.
        up: How fast they upload.
        loss_probability: ``(N,)`` float64, how probable it is that a visit's work never arrives.
        availability: When each client is there.
        when_away: What becomes of a visit whose client goes away: it goes on when the client is back, or is lost.
    """

    step_seconds: NDArray[np.float64]
    down: Link
    up: Link
    loss_probability: NDArray[np.float64]
    availability: Availability
    when_away: WhenAway

    def visit_is_lost(self, seed: int, client: int, visit: int) -> bool:
        """Return whether the work of a visit is lost on its way.

        Args:
            seed: The run's seed.
            client: Whose visit it is.
            visit: How many times the client had been given work before.
        """
        return number(seed, Purpose.LOSS, client, visit) < self.loss_probability[client].item()


def lossy(clients: int, *, fraction: float, probability: float, seed: int) -> NDArray[np.float64]:
    """Return loss probabilities: ``probability`` for a random part of the clients, 0 for the others.

    Args:
        clients: How many clients, N.
        fraction: The part of the clients that is lossy, in [0, 1]; exactly round(fraction · N) clients are.
        probability: How probable it is that a visit's work of a lossy client is lost, in [0, 1].
        seed: The run's seed.

    Returns:
        ``(N,)``.

    Raises:
        OffbeatError: One of the two numbers is not in [0, 1].
    """
    for name, share in (("fraction", fraction), ("probability", probability)):
        if not 0 <= share <= 1:
            raise OffbeatError(f"{name} is {share}, but must be between 0 and 1")
    order = np.argsort(uniform(seed, Purpose.LOSSY_CLIENTS, client=np.arange(clients)), kind="stable")
    probabilities = np.zeros(clients)
    probabilities[order[: round(fraction * clients)]] = probability
    return probabilities
