"""The privacy that a run has spent, and the state of its sums."""

import math
from dataclasses import dataclass
from statistics import median_low

from offbeat_core.messages import Answer
from offbeat_private.accounting import epsilon
from offbeat_private.signed_terms import Terms

from offbeat.coordinator import Coordinator
from offbeat.service.masked.helper_protocol import MaskHelper
from offbeat.service.masked.masked_shares import MaskedShares


@dataclass(frozen=True)
class PrivacySettings:
    """The privacy of a run's sums; no terms and helper if they are not masked."""

    noise_multiplier: float  # σ; 0 for masks alone
    delta: float  # δ, for which ε is reported
    terms: Terms | None = None
    helper: MaskHelper | None = None
    noise_secret: str | None = None  # its fingerprint; None if this server does not make noise


class ByClient(Answer):
    """A value by client, over all N clients."""

    largest: float
    median: float


class PrivacyStatus(Answer):
    """The privacy spent so far.

    ε is null without noise. Of a sum that was sealed, the status counts the participations already. ``helper`` is
    ``ok``, or why sums cannot be opened now and what to do; null if updates are not masked.
    """

    delta: float
    epsilon: ByClient | None
    epsilon_replace_one: ByClient | None
    sums_opened: int
    sums_discarded: int
    sums_waiting: int
    suspended_clients: int
    helper: str | None


def is_without_clients(coordinator: Coordinator) -> bool:
    """Return whether no client may take part any more, and nothing is under way.

    Participations are spent, clients are suspended, or all have worked from the version that a discarded sum left.
    """
    participation, algorithm = coordinator.participation, coordinator.algorithm
    if participation is None or algorithm.sealed or algorithm.period is not None:
        return False
    if coordinator.visits.open_assignments() or coordinator.next_lapse() < math.inf:
        return False
    return not any(participation.allows(client, algorithm) for client in range(coordinator.clients))


def privacy_status(settings: PrivacySettings, coordinator: Coordinator, shares: MaskedShares | None) -> PrivacyStatus:
    """Return the status of a run with limits on participation."""
    participation, algorithm = coordinator.participation, coordinator.algorithm
    assert participation is not None
    counts = participation.counts()

    def by_client(*, replace_one: bool) -> ByClient | None:
        largest, median = (
            epsilon(settings.noise_multiplier, count, settings.delta, replace_one=replace_one)
            for count in (max(counts), median_low(counts))
        )
        return ByClient(largest=largest, median=median) if largest < math.inf else None

    return PrivacyStatus(
        delta=settings.delta,
        epsilon=by_client(replace_one=False),
        epsilon_replace_one=by_client(replace_one=True),
        sums_opened=algorithm.version,
        sums_discarded=algorithm.opened - algorithm.version,
        sums_waiting=len(algorithm.sealed),
        suspended_clients=len(participation.suspended()),
        helper=None if shares is None else shares.facts.problem or "ok",
    )
