"""``[privacy]`` in a simulation, with a helper in this process."""

import hashlib
import math
from collections.abc import Callable

import torch
from offbeat_private.accounting import epsilon
from offbeat_private.noise.noise_rows import NoiseSource
from torch import Tensor

from offbeat.algorithms import Algorithm
from offbeat.config.experiment_sections import PRIVACY_COLUMNS
from offbeat.config.privacy_section import PrivacySection
from offbeat.coordinator.participation_limits import Participation
from offbeat.simulation.evaluations import Evaluate
from offbeat.simulation.masked_updates import MaskedUpdates
from offbeat.worlds.privacy import protection


def protect(
    section: PrivacySection,
    algorithm: Algorithm,
    *,
    clients: int,
    length: int,
    versions: float = math.inf,
    seed: int,
) -> tuple[Participation, MaskedUpdates | None]:
    """Put the section's wrapper around an algorithm's buffer, before its start.

    The noise is made of the run's seed, so that runs can be repeated. Whoever knows the seed can subtract it: a
    simulation shows the accuracy of a private run, and protects nobody's data.

    Returns:
        The limits on clients' parts in sums, and how clients mask their updates; None for updates in the clear.

    Raises:
        ValueError: The section does not fit the algorithm or the run.
    """
    asked = protection(section, algorithm, clients, length, versions)
    secret_key = hashlib.sha256(f"noise of the simulation {seed}".encode()).digest()
    noise = asked.noise(secret_key)
    asked.wrap(algorithm, noise, secret_key)
    if section.helper is None:
        return asked.participation(), None
    sends_differences = asked.payload == "difference"
    masked = MaskedUpdates(asked.grid, seed, _open_sum(noise), sends_differences)
    return asked.participation(), masked


def _open_sum(noise: NoiseSource | None) -> Callable[[int, Tensor], Tensor]:
    """Return what a helper does: add the noise of a number to a sum, ``(d,)``.

    A simulation makes one sum of each number, which therefore stands for the digest of a batch.
    """

    def open_sum(number: int, total: Tensor) -> Tensor:
        if noise is None:
            return total
        digests = [n.to_bytes(32, "big") for n in range(max(1, number + 1 - noise.rows), number + 1)]
        return total + torch.from_numpy(noise.noise(number, digests)).to(total.device).to(torch.int32)

    return open_sum


def with_epsilon(evaluate: Evaluate, section: PrivacySection, participation: Participation) -> Evaluate:
    """Return an evaluation that also says what was spent.

    That is ε of the client with the most participations.
    """

    def evaluated(model: Tensor) -> tuple[float, dict[str, float]]:
        loss, metrics = evaluate(model)
        spent = section.noise_multiplier, max(participation.counts()), section.delta
        values = epsilon(*spent), epsilon(*spent, replace_one=True)
        return loss, {**metrics, **dict(zip(PRIVACY_COLUMNS, values, strict=True))}

    return evaluated
