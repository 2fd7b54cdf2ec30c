"""The privacy that a run has spent, and the state of its sums."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median_low

from offbeat_core.messages import Answer
from offbeat_private.accounting import affordable, composed_epsilon, spending
from offbeat_private.signed_terms import Terms

from offbeat.coordinator import Coordinator
from offbeat.service.masked.helper_protocol import MaskHelper
from offbeat.service.masked.masked_shares import MaskedShares


@dataclass(frozen=True)
class Budget:
    """The limit of a client's ε over this run and others.

    ``earlier`` is Σ participations / σ² of runs before it, by ``Site.identity``; ``elsewhere`` returns that of the
    server's other runs, as it is now.
    """

    epsilon_total: float
    earlier: Mapping[str, float]
    elsewhere: Callable[[str], float] | None = None

    def spent(self, identity: str) -> float:
        """Return what a client has spent in the other runs."""
        return self.earlier.get(identity, 0.0) + (0.0 if self.elsewhere is None else self.elsewhere(identity))


@dataclass(frozen=True)
class PrivacySettings:
    """The privacy of a run's sums; no terms and helper if they are not masked."""

    noise_multiplier: float  # σ; 0 for masks alone
    delta: float  # δ, for which ε is reported
    terms: Terms | None = None
    helper: MaskHelper | None = None
    noise_secret: str | None = None  # its fingerprint; None if this server does not make noise
    budget: Budget | None = None  # None if ε is not limited

    def most_participations(self, identity: str) -> int | None:
        """Return in how many sums a client may take part, for what it spent before.

        None if it has spent nothing, so that the limit of all clients holds.
        """
        spent = 0.0 if self.budget is None else self.budget.spent(identity)
        if self.budget is None or not spent:
            return None
        return affordable(self.budget.epsilon_total, self.delta, self.noise_multiplier, spent)


class ByClient(Answer):
    """A value by client, over all N clients."""

    largest: float
    median: float


class PrivacyStatus(Answer):
    """The privacy spent so far, with earlier runs where they count towards a limit.

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


def privacy_status(
    settings: PrivacySettings, coordinator: Coordinator, shares: MaskedShares | None, identities: Mapping[int, str]
) -> PrivacyStatus:
    """Return the status of a run with limits on participation.

    ``identities`` are those of the enrolled clients.
    """
    participation, algorithm = coordinator.participation, coordinator.algorithm
    assert participation is not None
    counts = participation.counts()
    spent = [spending(settings.noise_multiplier, count) for count in counts]
    if (budget := settings.budget) is not None:
        for client, identity in identities.items():
            spent[client] += budget.spent(identity)

    def by_client(*, replace_one: bool) -> ByClient | None:
        largest, median = (
            composed_epsilon(one, settings.delta, replace_one=replace_one) for one in (max(spent), median_low(spent))
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
