"""Private sums from ``[privacy]``: buffer, noise, limits on participation."""

import hmac
import math
from dataclasses import dataclass
from functools import partial

from offbeat_core.local_plan import normaliser
from offbeat_core.number_checks import LARGEST_COUNT
from offbeat_private.limits import check_schedule
from offbeat_private.noise.noise_rows import NoiseSource
from offbeat_private.signed_terms import LARGEST_SUM, NOISE_TAIL, MaskedPayload, largest_masked, largest_number

from offbeat.algorithms import Algorithm, LocalPlan
from offbeat.algorithms.components.buffers.noisy_sum import noisy
from offbeat.algorithms.components.buffers.privacy_checks import check_private_sum
from offbeat.algorithms.components.buffers.secret import secret
from offbeat.algorithms.components.client_update import Update
from offbeat.config.privacy_section import PrivacySection
from offbeat.coordinator.participation_limits import Participation
from offbeat.whole_numbers import Grid, WholeNumbers

_ANY_PLAN = LocalPlan(steps=7, batch_size=1, lr=0.1, momentum=0.5)


@dataclass(frozen=True)
class Protection:
    """A ``[privacy]`` section in a run of one algorithm.

    Attributes:
        section: The section.
        places: K, the most updates in a sum.
        clients: N.
        length: d.
        payload: The content of masked vectors.
    """

    section: PrivacySection
    places: int
    clients: int
    length: int
    payload: MaskedPayload = "delta"

    @property
    def grid(self) -> Grid:
        """The whole numbers of updates and sums."""
        return Grid(self.section.clip_norm, largest_number(self.section.bits))

    def participation(self) -> Participation:
        """Return the limits on clients' parts in sums."""
        section = self.section
        return Participation(self.clients, limit=section.participations, separation=section.min_separation)

    def noise(self, secret_key: bytes) -> NoiseSource | None:
        """Return the noise of sums; None without noise."""
        section = self.section
        if section.noise_multiplier == 0:
            return None
        return NoiseSource(
            secret_key,
            self.length,
            noise_multiplier=section.noise_multiplier,
            largest=self.grid.largest,
            participations=section.max_participations or 1,
            separation=section.min_separation,
            bands=section.bands,
        )

    def wrap(self, algorithm: Algorithm, noise: NoiseSource | None, secret_key: bytes) -> None:
        """Put the masked or noisy sum around the algorithm's buffer, before its start.

        Args:
            algorithm: The algorithm.
            noise: The noise of sums.
            secret_key: 32 bytes, of which a server without a helper rounds updates.

        Raises:
            ValueError: The algorithm does not go with it.
        """
        section = self.section
        algorithm.measures = False  # a client's speed may depend on its data
        if section.helper is None:
            whole = partial(_whole_numbers, self.grid, secret_key)
            algorithm.wrap(noisy(step=self.grid.step, whole=whole, noise=noise, least=section.min_clients))
            return
        if type(algorithm).urgent is not Algorithm.urgent:
            raise ValueError(
                f"privacy.helper does not work with {algorithm.name}: it asks for partial updates, and a masked update "
                "must have all its steps: leave privacy.helper out"
            )
        if algorithm.divisor(_ANY_PLAN) not in (1, normaliser(_ANY_PLAN)):
            raise ValueError(
                f"privacy.helper does not work with {algorithm.name}: its updates are divided by a number of its own; "
                "masked updates may only be divided by 1 or by FedNova's normaliser: leave privacy.helper out"
            )
        bound = self._bound(noise)
        algorithm.wrap(secret(step=self.grid.step, bound=bound, least=section.min_clients))

    def _bound(self, noise: NoiseSource | None) -> int:
        """Return the largest absolute value of a true sum's entry.

        That is K updates and ten standard deviations of noise.
        """
        deviation = 0.0 if noise is None else noise.deviation
        bound = self.places * largest_masked(self.section.bits, self.payload) + math.ceil(NOISE_TAIL * deviation)
        if bound > LARGEST_SUM:
            raise ValueError(
                f"a sum of {self.places} updates of {self.section.bits} bits and its noise could overflow: lower "
                "privacy.bits"
            )
        return bound


def protection(
    section: PrivacySection, algorithm: Algorithm, clients: int, length: int, versions: float = math.inf
) -> Protection:
    """Return what ``[privacy]`` asks for.

    Args:
        section: The section.
        algorithm: Not wrapped yet.
        clients: N.
        length: d.
        versions: How many versions the run makes; infinite if that is not known.

    Raises:
        ValueError: The section does not fit the algorithm or the run.
        OffbeatError: There are not enough clients for so many versions.
    """
    if type(algorithm).receive is not Algorithm.receive:
        raise ValueError(
            f"[privacy] does not work with {algorithm.name}, which replaces Algorithm.receive: write it with a buffer "
            "and weigh"
        )
    is_masked = section.helper is not None
    check_private_sum(algorithm, is_masked=is_masked, is_noisy=section.noise_multiplier > 0)
    size = getattr(algorithm, "buffer_size", None) or getattr(algorithm, "cohort", None)
    if size is None and section.min_separation > 1:
        raise ValueError(
            f"{algorithm.name} may have all clients in one sum, and with privacy.min_separation above 1 nobody could "
            "be in the next: leave it out"
        )
    places = size or clients - 1  # one lost client would hold up a sum of all
    if section.min_clients > places:
        raise ValueError(
            f"privacy.min_clients must be at most {places}, the updates of a sum, got {section.min_clients}"
        )
    if section.delta > 1 / clients:
        raise ValueError(
            f"privacy.delta must be at most 1/{clients}, one over the number of clients, got {section.delta:g}"
        )
    check_schedule(
        clients=clients,
        participations=int(min(section.participations, LARGEST_COUNT)),
        separation=section.min_separation,
        buffer=size or section.min_clients,
        versions=int(versions) if versions < math.inf else 1,
    )
    # Updates of a sum that was too small go into the next one, which has each client once at most.
    places = min(places + section.min_clients - 1, clients)
    payload = "difference" if algorithm.payload == "difference" else "delta"
    return Protection(section, places, clients, length, payload)


def _whole_numbers(grid: Grid, secret_key: bytes, update: Update, divisor: float, scale: float) -> WholeNumbers:
    """Return an update's whole numbers.

    The rounding depends on nothing that clients send. A client's counted updates start from different versions.
    """
    key = hmac.digest(secret_key, f"rounding {update.client} {update.version}".encode(), "sha256")
    return WholeNumbers(update.vector, grid, divisor, scale, key)
