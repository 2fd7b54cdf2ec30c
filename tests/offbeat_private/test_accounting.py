import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from offbeat_private.accounting import (
    affordable,
    check_epsilon_total,
    composed_epsilon,
    epsilon,
    gaussian_delta,
    noise_multiplier,
    spending,
)


def delta_in_fifty_digits(mu: float, value: float) -> mpmath.mpf:
    """Return Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) as it is written."""
    with mpmath.workdps(50 + int(mu**2)):
        exact_mu, exact = mpmath.mpf(mu), mpmath.mpf(value)
        near, far = exact_mu / 2 - exact / exact_mu, -exact_mu / 2 - exact / exact_mu
        return mpmath.ncdf(near) - mpmath.exp(exact) * mpmath.ncdf(far)


@pytest.mark.parametrize(
    ("sigma", "participations", "delta", "expected"),
    [(5, 1, 1e-5, 0.726), (5, 10, 1e-5, 2.594), (5, 100, 1e-5, 9.997), (0.8, 10, 1e-6, 25.9)],
)
def test_epsilon_of_the_design(sigma: float, participations: int, delta: float, expected: float) -> None:
    # half a unit of the last digit given
    tolerance = 0.05 if expected > 10 else 0.0005
    assert epsilon(sigma, participations, delta) == pytest.approx(expected, abs=tolerance)


def test_replacing_a_client_counts_as_twice_its_norm() -> None:
    assert epsilon(5, 10, 1e-5, replace_one=True) == pytest.approx(5.76, abs=0.005)
    assert epsilon(5, 10, 1e-5, replace_one=True) == epsilon(2.5, 10, 1e-5)


def test_noise_of_the_design() -> None:
    sigma = noise_multiplier(4, 10, 1e-6)
    assert sigma == pytest.approx(3.77, abs=0.005)
    assert epsilon(sigma, 10, 1e-6) <= 4 < epsilon(sigma * (1 - 1e-9), 10, 1e-6)


@pytest.mark.parametrize("mu", [0.01, 0.632, 8.0])
def test_epsilon_is_rounded_up(mu: float) -> None:
    value = epsilon(1 / mu, 1, 1e-5)
    exact_mu = 1 / (1 / mu)
    assert gaussian_delta(exact_mu, value) <= 1e-5 < gaussian_delta(exact_mu, math.nextafter(value, 0))


@pytest.mark.parametrize("mu", [1e-3, 0.1, 0.632, 2.0, 5.0, 12.0])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0, 3.0])
def test_delta_keeps_its_digits(mu: float, share: float) -> None:
    value = share * (mu**2 / 2 + 4 * mu)  # around the place where the two terms nearly cancel, and far beyond it
    assert gaussian_delta(mu, value) == pytest.approx(float(delta_in_fifty_digits(mu, value)), rel=1e-9)


def test_delta_of_distant_distributions() -> None:
    assert gaussian_delta(200, 10) == 1
    assert gaussian_delta(200, 1e6) == 0


def test_delta_is_the_hockey_stick_of_two_gaussians() -> None:
    x, step = np.linspace(-12, 14, 2_000_001, retstep=True)
    p, q = (np.exp(-((x - mean) ** 2) / 2) / math.sqrt(2 * math.pi) for mean in (0.8, 0.0))
    assert gaussian_delta(0.8, 1.5) == pytest.approx(np.maximum(p - math.exp(1.5) * q, 0).sum() * step, rel=1e-6)


@given(
    participations=st.integers(1, 10**6),
    target=st.floats(-6, 6).map(lambda power: 10**power),
    delta=st.floats(-300, math.log10(0.3)).map(lambda power: 10**power),
)
@example(1, 1e-6, 1e-300)
@example(1, 1e6, 1e-300)
@example(10**6, 1e-6, 0.3)
@example(10**6, 1e6, 0.3)
@example(10, 1.0, 1e-5)
def test_epsilon_and_noise_are_inverse(participations: int, target: float, delta: float) -> None:
    sigma = noise_multiplier(target, participations, delta)
    assert 0 < sigma < math.inf
    found = epsilon(sigma, participations, delta)
    # Where δ alone nearly pays for σ, ε is small beside what it would be without δ, and so are its digits.
    assert found == pytest.approx(target, rel=1e-6)


def test_ends() -> None:
    assert epsilon(5, 0, 1e-5) == 0
    assert epsilon(0, 1, 1e-5) == math.inf
    assert epsilon(1e6, 1, 1e-5) == 0  # δ is enough: the total variation is 4·10⁻⁷
    assert epsilon(1e-3, 1, 1e-5) == pytest.approx(1e6 / 2 + 4.2649 * 1e3, rel=1e-5)  # Φ(−4.2649) = 10⁻⁵


@pytest.mark.parametrize(
    ("compute", "arguments", "name"),
    [
        *((epsilon, (5, 10, delta), "delta") for delta in (0.0, 1.0, math.nan)),
        (noise_multiplier, (4, 10, 1.0), "delta"),
        (epsilon, (-1, 10, 1e-5), "noise_multiplier"),
        (epsilon, (1, -1, 1e-5), "participations"),
        (noise_multiplier, (0, 1, 1e-5), "target_epsilon"),
        (noise_multiplier, (1, 0, 1e-5), "participations"),
    ],
)
def test_values_out_of_range_are_refused(
    compute: Callable[..., float], arguments: tuple[float, float, float], name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        compute(*arguments)


@pytest.mark.parametrize(
    ("sigma", "participations", "delta"), [(5, 1, 1e-5), (5, 10, 1e-5), (3.77, 10, 1e-6), (1, 4, 1e-6)]
)
def test_agrees_with_googles_accountant(sigma: float, participations: int, delta: float) -> None:
    """Its PLD accountant discretises the privacy loss and rounds up, here by less than 0.001."""
    dp_accounting = pytest.importorskip("dp_accounting")
    pld = pytest.importorskip("dp_accounting.pld")
    relations = dp_accounting.NeighboringRelation
    for relation, replace_one in ((relations.REPLACE_SPECIAL, False), (relations.REPLACE_ONE, True)):
        accountant = pld.PLDAccountant(relation).compose(dp_accounting.GaussianDpEvent(sigma), participations)
        ours = epsilon(sigma, participations, delta, replace_one=replace_one)
        assert accountant.get_epsilon(delta) == pytest.approx(ours, abs=1e-3)


def exact_epsilon(mu: float, delta: float) -> float:
    """Return ε by bisection of the formula in fifty digits."""
    low, high = 0.0, 200.0
    while high - low > 1e-10:
        middle = (low + high) / 2
        low, high = (middle, high) if delta_in_fifty_digits(mu, middle) > delta else (low, middle)
    return high


def test_runs_of_different_noise_compose_by_the_sum_of_their_squares() -> None:
    # 4 participations under σ = 2 and 18 under σ = 3: μ² = 4/4 + 18/9 = 3.
    spent = spending(2.0, 4) + spending(3.0, 18)
    assert spent == pytest.approx(3.0)
    assert composed_epsilon(spent, 1e-5) == pytest.approx(exact_epsilon(math.sqrt(3), 1e-5), abs=1e-8)
    assert composed_epsilon(spent, 1e-5, replace_one=True) == pytest.approx(
        exact_epsilon(2 * math.sqrt(3), 1e-5), abs=1e-8
    )


def test_a_run_without_participations_costs_nothing_and_one_without_noise_everything() -> None:
    assert (spending(0.0, 0), spending(0.0, 1)) == (0.0, math.inf)
    assert (composed_epsilon(0.0, 1e-5), composed_epsilon(math.inf, 1e-5)) == (0.0, math.inf)


@pytest.mark.parametrize(("target", "sigma", "spent"), [(4.0, 3.775, 0.0), (8.0, 2.0, 0.5), (3.0, 5.0, 0.31)])
def test_one_more_participation_than_is_affordable_exceeds_the_target(
    target: float, sigma: float, spent: float
) -> None:
    number = affordable(target, 1e-6, sigma, spent)
    assert number > 0
    assert exact_epsilon(math.sqrt(spent + number / sigma**2), 1e-6) <= target
    assert exact_epsilon(math.sqrt(spent + (number + 1) / sigma**2), 1e-6) > target


@pytest.mark.parametrize("participations", [1, 3, 10, 77, 1000])
def test_noise_that_was_made_for_a_target_affords_its_participations(participations: int) -> None:
    sigma = noise_multiplier(4.0, participations, 1e-6)
    assert affordable(4.0, 1e-6, sigma) == participations
    assert affordable(4.0, 1e-6, sigma, spending(sigma, participations)) == 0
    assert affordable(4.0, 1e-6, sigma, 1e9) == 0


def test_a_limit_that_allows_no_participation_is_refused() -> None:
    check_epsilon_total(4.0, 1e-6, 1.2)
    with pytest.raises(ValueError, match="one participation has a larger ε than epsilon_total = 4"):
        check_epsilon_total(4.0, 1e-6, 1.1)
    with pytest.raises(ValueError, match="epsilon_total needs noise"):
        check_epsilon_total(4.0, 1e-6, 0.0)
