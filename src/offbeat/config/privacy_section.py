"""``[privacy]``: clipped updates, noise, and masks."""

import math
from typing import Annotated

from offbeat_core.tables.section import Count, NotNegative, Positive, Section
from offbeat_private.accounting import affordable, check_epsilon_total
from offbeat_private.signed_terms import Mechanism
from pydantic import Field, model_validator


class PrivacySection(Section):
    """``[privacy]``: limits on one client's influence, noise, and masks."""

    helper: str | None = None
    """The helper's https address: updates are masked, and the helper opens sums only. In a simulation any text stands
    for a helper in this process. If it is left out, the server sees updates and adds the noise itself."""
    min_clients: Count = 1
    """T: the fewest clients in a sum; at least 2 with a helper."""
    clip_norm: Positive
    """C: updates with a larger Euclidean norm are scaled down to it, by the client where there is a helper."""
    noise_multiplier: NotNegative = 0.0
    """σ: the noise of a sum that one client is in once has the standard deviation σ · C; 0 for none."""
    mechanism: Mechanism = "independent"
    """Noise that is independent from sum to sum, or banded: partly cancelled by that of later sums."""
    max_participations: Count | None = None
    """k: in how many sums a client takes part at most; needed for noise."""
    min_separation: Count = 1
    """b: a client's next sum comes at least so many sums later."""
    bits: Annotated[int, Field(ge=2, le=24)] = 20
    """Bits of a number of a masked update."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """δ, for which ε is reported and limited; at most 1/N."""
    epsilon_total: Positive | None = None
    """The most ε (zero-out) of a client: it takes part no more once its next sum would exceed that. On a server with a
    helper set terms.epsilon_total in the helper's roster instead."""

    @model_validator(mode="after")
    def _check_combination(self) -> "PrivacySection":
        if self.helper is not None and self.min_clients < 2:
            raise ValueError("min_clients must be at least 2 with a helper, which never opens a single update")
        if self.noise_multiplier > 0 and self.max_participations is None:
            raise ValueError("max_participations is missing: noise is made for a number of participations")
        if self.epsilon_total is not None:
            check_epsilon_total(self.epsilon_total, self.delta, self.noise_multiplier)
        return self

    @property
    def participations(self) -> float:
        """The most sums of a client, also by epsilon_total; infinity for any number."""
        limit = math.inf if self.max_participations is None else self.max_participations
        if self.epsilon_total is None:
            return limit
        return min(limit, affordable(self.epsilon_total, self.delta, self.noise_multiplier))

    @property
    def bands(self) -> int:
        """Rows of random numbers in the noise of a sum."""
        return self.min_separation if self.mechanism == "banded" else 1
