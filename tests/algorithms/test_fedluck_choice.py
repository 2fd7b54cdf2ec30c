import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offbeat import theory
from offbeat.algorithms.fedluck_choice import best_steps_and_compression


def phi(k, share, alpha, beta, period=1.0):
    """(kα + δβ)²(2 − δ) + 1 over kδ, α and β in periods; for numbers and arrays."""
    return (((k * alpha + share * beta) / period) ** 2 * (2 - share) + 1) / (k * share)


@pytest.mark.parametrize(("alpha", "steps"), [(0.5, 2), (0.1, 10), (0.3, 3), (2.0, 1), (0.001, 50)])
def test_without_uploads_a_visit_lasts_a_period(alpha, steps):
    # φ(k, 1) = kα² + 1/k is smallest at k = 1/α; at α = 0.3 it is 0.603 for 3 steps and 0.61 for 4.
    assert best_steps_and_compression(alpha, 0, 1, steps=(1, 50)) == (steps, 1.0)


def test_nothing_to_upload_needs_no_compression():
    assert best_steps_and_compression(0.5, 0, 1, compression=(0.1, 0.9))[1] == 0.9


def test_steps_that_take_no_time_are_all_taken():
    assert best_steps_and_compression(0, 1, 1, steps=(2, 30)) == (30, 1.0)


def test_what_takes_no_time_at_all_is_not_saved():
    assert best_steps_and_compression(0, 0, 1, steps=(2, 30), compression=(0.1, 0.7)) == (30, 0.7)


def test_a_long_period_takes_all_steps_uncompressed():
    assert best_steps_and_compression(0.1, 0.1, 1e6) == (50, 1.0)


def test_seconds_count_in_periods():
    assert best_steps_and_compression(0.02, 60, 2) == best_steps_and_compression(0.01, 30, 1)


def test_an_interior_compression_solves_the_cubic():
    k, share = best_steps_and_compression(0.01, 30, 1, steps=(3, 3), compression=(0.001, 1.0))
    assert k == 3
    assert 0.001 < share < 0.1
    assert 2 * 30**2 * share**3 - 2 * 30 * (30 - 0.03) * share**2 + 2 * 0.03**2 + 1 == pytest.approx(0, abs=1e-9)


def test_with_two_minima_the_lower_one_is_taken():
    """One step in no time, k = 1: φ = (b²δ²(2 − δ) + 1)/δ has a minimum at the smaller root and one at δ = 1."""
    assert best_steps_and_compression(0, 1.9, 1, steps=(1, 1)) == (1, 1.0)  # 4.61 there, 4.70 at 0.5625
    _, share = best_steps_and_compression(0, 2.1, 1, steps=(1, 1))  # 5.41 at 1, 5.30 at the root
    assert 0.4 < share < 0.5
    assert share**3 - share**2 + 0.5 / 2.1**2 == pytest.approx(0, abs=1e-12)
    assert best_steps_and_compression(0, 2.1, 1, steps=(1, 1), compression=(0.5, 0.9)) == (1, 0.5)


@pytest.mark.parametrize("beta", [1e3, 1e6, 1e9, 1e12])
def test_the_slower_the_upload_the_less_is_sent_however_slow(beta):
    # For b → ∞ the cubic's smaller root tends to 1/(b√2), and is that but for a relative 1/(2√2 b).
    _, share = best_steps_and_compression(0, beta, 1, steps=(1, 1), compression=(1e-15, 1.0))
    assert share == pytest.approx(1 / (beta * math.sqrt(2)), rel=1 / beta + 1e-12)


@pytest.mark.parametrize("nudge", [0.0, -1e-16, 1e-16, -1e-9, 1e-9])
def test_where_the_roots_meet_phi_only_falls(nudge):
    # At b² = 27/8 and ka = 0 the cubic has the double root 2/3.
    beta = math.sqrt(27 / 8) * (1 + nudge)
    assert best_steps_and_compression(0, beta, 1, steps=(1, 1), compression=(0.1, 1.0)) == (1, 1.0)
    assert best_steps_and_compression(0, beta, 1, steps=(1, 1), compression=(0.1, 0.6)) == (1, 0.6)


@given(
    st.floats(-7, 4),
    st.floats(-7, 6),
    st.floats(-2, 3),
    st.tuples(st.integers(1, 1000), st.integers(1, 1000)),
    st.tuples(st.floats(-5, 0), st.floats(-5, 0)),
)
@example(-9.0, math.log10(2.1), 0.0, (1, 1), (-2.0, 0.0))
@example(-1.0, 1.0, 0.0, (1, 1000), (-5.0, 0.0))
def test_no_point_of_a_dense_grid_is_better(log_alpha, log_beta, log_period, steps, log_shares):
    alpha, beta, period = 10**log_alpha, 10**log_beta, 10**log_period
    steps = min(steps), max(steps)
    shares = 10 ** min(log_shares), 10 ** max(log_shares)
    k, share = best_steps_and_compression(alpha, beta, period, steps, shares)
    assert isinstance(k, int)
    assert steps[0] <= k <= steps[1]
    assert shares[0] <= share <= shares[1]
    ks = np.arange(steps[0], steps[1] + 1, dtype=float)[:, None]
    grid = np.concatenate([np.geomspace(*shares, 100), np.linspace(*shares, 100)]).clip(*shares)
    assert phi(k, share, alpha, beta, period) <= phi(ks, grid, alpha, beta, period).min() * (1 + 1e-6)


@given(st.floats(0, 3e38), st.floats(0, 3e38), st.sampled_from([1e-3, 1.0, 1e6]))
@example(0.0, 1e-200, 1.0)
@example(5e-324, 5e-324, 1.0)
@example(3e38, 5e-324, 1e-3)
@example(3e38, 3e38, 1e-3)
def test_whatever_a_client_says_it_measured_there_is_a_choice(alpha, beta, period):
    k, share = best_steps_and_compression(alpha, beta, period, (2, 7), (0.01, 0.5))
    assert 2 <= k <= 7
    assert 0.01 <= share <= 0.5


def test_the_theory_has_it_too():
    assert theory.best_steps_and_compression is best_steps_and_compression


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"period": 0}, "period must be greater than 0, got 0"),
        ({"step_seconds": -1}, "step_seconds must not be negative, got -1"),
        ({"upload_seconds": math.nan}, "upload_seconds must be finite in 32 bits, got nan"),
        ({"steps": (0, 5)}, "steps must be a whole number of at least 1, got 0"),
        ({"steps": (1, 5.5)}, "steps must be a whole number of at least 1, got 5.5"),
        ({"steps": (1, 100_001)}, r"steps must be at most 100,000, since all are tried, got \[1, 100001\]"),
        ({"steps": (5, 4)}, r"steps must run from the smallest to the largest, got \[5, 4\]"),
        ({"compression": (0, 1)}, r"two shares in \(0, 1\], the smaller first, got \[0, 1\]"),
        ({"compression": (0.5, 1.5)}, "compression must be two shares"),
        ({"compression": (0.5, 0.4)}, "compression must be two shares"),
        ({"compression": (0.5, math.nan)}, "compression must be two shares"),
    ],
)
def test_ranges_are_checked(change, message):
    with pytest.raises(ValueError, match=message):
        best_steps_and_compression(**{"step_seconds": 1, "upload_seconds": 1, "period": 1, **change})
