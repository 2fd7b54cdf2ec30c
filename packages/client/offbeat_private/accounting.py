"""Privacy accounting: (ε, δ) of a client's participations, in closed form.

A client takes part in at most k versions. Its clipped updates reach the released sums under Gaussian noise that is
calibrated to their joint sensitivity, so all releases together are one Gaussian mechanism with
``μ = √k / σ``: they tell the client's presence from its absence no better than one number tells N(μ, 1) from N(0, 1).
Independent and banded noise are both scaled so (``noise_rows``), so ε is the same for either.

Adjacency is zero-out: one client's updates become zeros and the schedule stays. Replacing them by other updates moves
the sums twice as far and doubles μ.

The exact (ε, δ) of a Gaussian mechanism is Theorem 8 of Balle and Wang, "Improving the Gaussian Mechanism for
Differential Privacy" (2018), and Corollary 2.13 of Dong, Roth and Su, "Gaussian Differential Privacy" (2019).
"""

import math
from collections.abc import Callable

from offbeat_core.number_checks import check_not_negative, check_positive


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest δ with which a Gaussian mechanism is (ε, δ)-private.

    ``δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)``. Where the difference is small, both terms are written with the scaled
    complementary error function and their common factor ``exp(−(μ/2 − ε/μ)²/2)`` is taken out, so that neither
    overflows and a small δ keeps its digits.

    Args:
        mu: Sensitivity divided by the noise's standard deviation, > 0.
        epsilon: ε ≥ 0.
    """
    # Imported here: a run without noise does not wait for it.
    from scipy.special import erfcx, ndtr

    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    factor = math.exp(-(near**2) / 2) / 2 if abs(near) < 40 else 0.0
    beyond = float(erfcx(far / math.sqrt(2)))
    if near < 0:
        return float(ndtr(-near)) - factor * beyond
    return factor * (float(erfcx(near / math.sqrt(2))) - beyond)


def epsilon(noise_multiplier: float, participations: int, delta: float, *, replace_one: bool = False) -> float:
    """Return ε of a client that took part in so many versions.

    It is exact for independent noise, and for banded noise at the participations that the noise is calibrated to. With
    fewer participations banded noise costs less than this, so the value is a bound; more must never happen.

    Args:
        noise_multiplier: σ ≥ 0; 0: without noise.
        participations: Versions that have one of the client's updates, ≥ 0.
        delta: δ, 0 < δ < 1.
        replace_one: For replace-one adjacency instead of zero-out.

    Returns:
        ε ≥ 0; infinite without noise.

    Raises:
        ValueError: A value is out of range.
    """
    check_not_negative("noise_multiplier", noise_multiplier)
    check_not_negative("participations", participations)
    _check_delta(delta)
    if participations == 0:
        return 0.0
    if noise_multiplier == 0:
        return math.inf
    mu = math.sqrt(participations) / noise_multiplier * (2 if replace_one else 1)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    # Φ(−√(2 ln(1/δ))) < δ, so the first term alone is small enough there.
    largest = mu**2 / 2 + mu * math.sqrt(-2 * math.log(delta))
    return _smallest(lambda value: gaussian_delta(mu, value) <= delta, largest)


def composed_epsilon(spent: float, delta: float, *, replace_one: bool = False) -> float:
    """Return ε of a client over several runs, whose noise may differ.

    Gaussian mechanisms one after the other are one whose μ² is the sum of theirs (Dong, Roth and Su, Corollary 3.3).

    Args:
        spent: Σ participations / σ² over the runs, ≥ 0.
        delta: δ, 0 < δ < 1.
        replace_one: For replace-one adjacency instead of zero-out.
    """
    if math.isinf(spent):
        return math.inf
    return epsilon(1 / math.sqrt(spent), 1, delta, replace_one=replace_one) if spent else 0.0


def spending(noise_multiplier: float, participations: int) -> float:
    """Return participations / σ², which adds up over runs; infinite without noise."""
    if not participations:
        return 0.0
    return participations / noise_multiplier**2 if noise_multiplier else math.inf


def largest_spending(target_epsilon: float, delta: float) -> float:
    """Return the largest Σ participations / σ² with which ε is at most the target.

    It is rounded up by 10⁻⁹ of itself, so that a noise that was made for the target suffices.
    """
    return (1 + 1e-9) / noise_multiplier(target_epsilon, 1, delta) ** 2


def affordable(target_epsilon: float, delta: float, noise_multiplier: float, spent: float = 0.0) -> int:
    """Return how many more participations keep ε at most at the target (zero-out).

    Args:
        target_epsilon: ε > 0.
        delta: δ, 0 < δ < 1.
        noise_multiplier: σ of these participations, > 0.
        spent: Σ participations / σ² before.
    """
    left = largest_spending(target_epsilon, delta) - spent
    return math.floor(left * noise_multiplier**2) if left > 0 else 0


def noise_multiplier(target_epsilon: float, participations: int, delta: float) -> float:
    """Return the smallest σ for a target ε (zero-out).

    Args:
        target_epsilon: ε > 0.
        participations: Versions that have one of the client's updates, ≥ 1.
        delta: δ, 0 < δ < 1.

    Raises:
        ValueError: A value is out of range.
    """
    check_positive("target_epsilon", target_epsilon)
    check_positive("participations", participations)
    _check_delta(delta)
    largest = 1.0
    while gaussian_delta(1 / largest, target_epsilon) > delta:
        largest *= 2
    return math.sqrt(participations) * _smallest(
        lambda value: value > 0 and gaussian_delta(1 / value, target_epsilon) <= delta, largest
    )


def check_epsilon_total(target_epsilon: float, delta: float, noise_multiplier: float) -> None:
    """Raise ``ValueError`` if a client may not take part once."""
    if not noise_multiplier:
        raise ValueError("epsilon_total needs noise, without which ε has no bound: set noise_multiplier")
    if not affordable(target_epsilon, delta, noise_multiplier):
        raise ValueError(
            f"with noise_multiplier = {noise_multiplier:g} one participation has a larger ε than epsilon_total = "
            f"{target_epsilon:g}: raise one of them"
        )


def _smallest(is_enough: Callable[[float], bool], largest: float) -> float:
    """Return the smallest float from which on ``is_enough`` holds, by bisection."""
    low, high = 0.0, largest
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1, got {delta}")
