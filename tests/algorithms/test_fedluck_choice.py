import math
from functools import partial

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from offbeat import theory
from offbeat.algorithms.fedluck_choice import best_steps_and_compression


def phi(k, share, alpha, beta, period=1.0, exponent=0.5):
    """(kα + δβ)²(2 − δ) + 1 over k δ^e, α and β in periods; for numbers and arrays."""
    return (((k * alpha + share * beta) / period) ** 2 * (2 - share) + 1) / (k * share**exponent)


# The authors' settings for Fashion-MNIST, 234,090 parameters and a period of 1.5 s, and what their code chooses.
AUTHORS_STEP_SECONDS = np.linspace(0.4, 0.1, 10)
AUTHORS_UPLOAD_SECONDS = 4 * 234_090 / 2**20 / np.array([0.1, 0.03, *np.linspace(0.1, 0.25, 10)[2:]])
AUTHORS_CHOICES = [
    (3, 0.07), (3, 0.02), (4, 0.11), (4, 0.12), (5, 0.14), (6, 0.16), (24, 1), (26, 1), (31, 1), (39, 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("alpha", "beta", "choice"), list(zip(AUTHORS_STEP_SECONDS, AUTHORS_UPLOAD_SECONDS, AUTHORS_CHOICES, strict=True))
)
def test_the_choices_of_the_authors_code(alpha, beta, choice):
    """Their δ is a whole number of hundredths; here it is any number, so it may lie half a hundredth away."""
    k, share = best_steps_and_compression(alpha, beta, 1.5, (2, 60))
    assert k == choice[0]
    assert share == pytest.approx(choice[1], abs=0.005)
    hundredths = np.arange(1, 101) / 100
    at = phi(np.arange(2, 61)[:, None], hundredths, alpha, beta, 1.5).argmin()
    assert (2 + at // 100, hundredths[at % 100]) == choice


def test_the_appendixs_exponent_chooses_otherwise():
    """With exponent 1 none of the first six of these clients would compress its updates."""
    for alpha, beta in zip(AUTHORS_STEP_SECONDS[:6], AUTHORS_UPLOAD_SECONDS[:6], strict=True):
        assert best_steps_and_compression(alpha, beta, 1.5, (2, 60), compression_exponent=1.0)[1] == 1
    # α = 0.05 s, β = 10 s, T̃ = 2 s
    assert best_steps_and_compression(0.05, 10, 2, compression_exponent=1.0) == (50, 1.0)
    assert best_steps_and_compression(0.05, 10, 2) == (34, pytest.approx(0.09, abs=0.005))


@pytest.mark.parametrize(
    ("seconds", "ranges", "choice"),
    [
        # Without uploads φ(k, 1) = kα² + 1/k is smallest at k = 1/α; at α = 0.3 it is 0.603 for 3 steps and 0.61 for 4.
        ((0.5, 0, 1), {}, (2, 1.0)),
        ((0.1, 0, 1), {}, (10, 1.0)),
        ((0.3, 0, 1), {}, (3, 1.0)),
        ((2.0, 0, 1), {}, (1, 1.0)),
        ((0.001, 0, 1), {}, (50, 1.0)),
        ((0.5, 0, 1), {"compression": (0.1, 0.9)}, (2, 0.9)),
        # Steps that take no time are all taken.
        ((0, 1, 1), {"steps": (2, 30), "compression_exponent": 1.0}, (30, 1.0)),
        ((0, 0, 1), {"steps": (2, 30), "compression": (0.1, 0.7)}, (30, 0.7)),
        ((0.1, 0.1, 1e6), {}, (50, 1.0)),
    ],
)
def test_choices_by_hand(seconds, ranges, choice):
    assert best_steps_and_compression(*seconds, **ranges) == choice


def test_with_two_minima_the_lower_one_is_taken():
    """One step in no time, k = 1: φ = (b²δ²(2 − δ) + 1)/δ has a minimum at the smaller root and one at δ = 1."""
    choose = partial(best_steps_and_compression, steps=(1, 1), compression_exponent=1.0)
    assert choose(0, 1.9, 1) == (1, 1.0)  # 4.61 there, 4.70 at 0.5625
    _, share = choose(0, 2.1, 1)  # 5.41 at 1, 5.30 at the root
    assert 0.4 < share < 0.5
    assert share**3 - share**2 + 0.5 / 2.1**2 == pytest.approx(0, abs=1e-12)
    assert choose(0, 2.1, 1, compression=(0.5, 0.9)) == (1, 0.5)


@pytest.mark.parametrize("beta", [1e3, 1e6, 1e9, 1e12])
def test_a_slower_upload_sends_less(beta):
    # For b → ∞ the smaller root tends to √(e/(4 − 2e))/b: at exponent 1 1/(b√2), but for a relative 1/(2√2 b).
    for exponent, limit in ((1.0, 1 / math.sqrt(2)), (0.5, 1 / math.sqrt(6))):
        _, share = best_steps_and_compression(0, beta, 1, (1, 1), (1e-15, 1.0), exponent)
        assert share == pytest.approx(limit / beta, rel=1 / beta + 1e-12)


@pytest.mark.parametrize("nudge", [0.0, -1e-16, 1e-16, -1e-9, 1e-9])
def test_phi_falls_where_the_roots_meet(nudge):
    # At b² = 27/8 and ka = 0 the cubic has the double root 2/3.
    beta = math.sqrt(27 / 8) * (1 + nudge)
    for largest in (0.6, 1.0):
        assert best_steps_and_compression(0, beta, 1, (1, 1), (0.1, largest), 1.0) == (1, largest)


@given(
    st.floats(-7, 4),
    st.floats(-7, 6),
    st.floats(-2, 3),
    st.tuples(st.integers(1, 1000), st.integers(1, 1000)),
    st.tuples(st.floats(-5, 0), st.floats(-5, 0)),
    st.floats(0, 2, exclude_min=True) | st.sampled_from([0.5, 1.0, 1.5, 2.0]),
)
@example(-9.0, math.log10(2.1), 0.0, (1, 1), (-2.0, 0.0), 1.0)
@example(-1.0, 1.0, 0.0, (1, 1000), (-5.0, 0.0), 1.0)
@example(-1.0, 1.0, 0.0, (1, 1000), (-5.0, 0.0), 0.5)
@example(-1.0, 1.0, 0.0, (1, 1000), (-5.0, 0.0), 5e-324)
def test_no_point_of_a_dense_grid_is_better(log_alpha, log_beta, log_period, steps, log_shares, exponent):
    is_best(10**log_alpha, 10**log_beta, 10**log_period, steps, log_shares, exponent)


@given(
    st.sampled_from([0.0, 1e-9, 1e9]) | st.floats(0, 10),
    st.sampled_from([0.0, 1e-9, 1e9]) | st.floats(0, 100),
    st.tuples(st.integers(1, 100), st.integers(1, 100)),
    st.tuples(st.floats(-14, 0), st.floats(-14, 0)),
    st.floats(0, 2, exclude_min=True) | st.sampled_from([1e-9, 0.5, 1.0, 2.0]),
)
def test_no_point_of_a_dense_grid_is_better_at_extreme_times(alpha, beta, steps, log_shares, exponent):
    is_best(alpha, beta, 1.0, steps, log_shares, exponent)


def is_best(alpha, beta, period, steps, log_shares, exponent):
    steps = min(steps), max(steps)
    shares = 10 ** min(log_shares), 10 ** max(log_shares)
    k, share = best_steps_and_compression(alpha, beta, period, steps, shares, exponent)
    assert isinstance(k, int)
    assert steps[0] <= k <= steps[1]
    assert shares[0] <= share <= shares[1]
    ks = np.arange(steps[0], steps[1] + 1, dtype=float)[:, None]
    grid = np.concatenate([np.geomspace(*shares, 100), np.linspace(*shares, 100)]).clip(*shares)
    least = phi(ks, grid, alpha, beta, period, exponent).min()
    assert phi(k, share, alpha, beta, period, exponent) <= least * (1 + 1e-6)


@given(
    st.floats(0, 3e38),
    st.floats(0, 3e38),
    st.sampled_from([1e-45, 1e-3, 1.0, 1e6]),
    st.floats(0, 2, exclude_min=True),
)
@example(0.0, 1e-200, 1.0, 0.5)
@example(5e-324, 5e-324, 1.0, 5e-324)
@example(3e38, 5e-324, 1e-3, 0.5)
@example(3e38, 3e38, 1e-3, 0.5)
@example(3e38, 3e38, 1e-45, 5e-324)
def test_every_measurement_has_a_choice(alpha, beta, period, exponent):
    k, share = best_steps_and_compression(alpha, beta, period, (2, 7), (0.01, 0.5), exponent)
    assert 2 <= k <= 7
    assert 0.01 <= share <= 0.5


def test_the_theory_exports_the_choice():
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
        ({"compression_exponent": 0}, "compression_exponent must be greater than 0, got 0"),
        ({"compression_exponent": math.inf}, "compression_exponent must be finite in 32 bits, got inf"),
        ({"compression_exponent": 2.1}, "compression_exponent must be at most 2, got 2.1"),
    ],
)
def test_ranges_are_checked(change, message):
    with pytest.raises(ValueError, match=message):
        best_steps_and_compression(**{"step_seconds": 1, "upload_seconds": 1, "period": 1, **change})
