import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from offbeat_private.masks.fixed_point import clip_factor, is_within, norm, quantise, whole_numbers
from offbeat_private.masks.keystream import keystream

KEY = bytes(range(32))
LARGEST = 2**19 - 1
ANY_LENGTH = st.integers(1, 50)
FINITE = arrays(np.float32, ANY_LENGTH, elements=st.floats(width=32, allow_nan=False, allow_infinity=False))
MODERATE = arrays(np.float32, ANY_LENGTH, elements=st.floats(-1000, 1000, width=32))


def float32(*numbers):
    return np.array(numbers, np.float32)


def exact_norm(vector):
    return math.sqrt(math.fsum(float(x) ** 2 for x in vector))


@given(FINITE)
def test_the_norm_neither_overflows_nor_vanishes(vector):
    assert norm(vector) == pytest.approx(exact_norm(vector), rel=1e-12)


def test_the_factor_never_enlarges():
    assert clip_factor(5.0, 2.0) == 0.4
    assert clip_factor(2.0, 2.0) == clip_factor(0.0, 2.0) == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_vector_that_is_not_finite_becomes_zeros(bad):
    vector = np.ones(40_000, np.float32)
    vector[39_000] = bad  # pieces before it have been quantised already
    assert not math.isfinite(norm(vector))
    assert not quantise(vector, 1e-3, KEY, LARGEST).any()
    assert not quantise(vector, 1e-3, KEY, LARGEST, factor=0.0).any()
    assert not whole_numbers(vector, clip_norm=1.0, largest=LARGEST, key=KEY).any()


@given(MODERATE, st.sampled_from([0.5, 0.01, 3.0]), st.binary(min_size=32, max_size=32))
def test_rounding_is_the_documented_formula(vector, step, key):
    words = keystream(key, 0, len(vector))
    expected = []
    for number, word in zip(vector, words, strict=True):
        x = Fraction(float(number) * (1.0 / step))
        q = math.floor(x)
        q += Fraction(int(word), 2**32) < Fraction(float(x) - q)
        expected.append(q)
    assert quantise(vector, step, key, LARGEST).tolist() == expected


@given(FINITE, st.integers(2, 24), st.floats(1e-3, 1e3), st.binary(min_size=32, max_size=32))
def test_quantised_numbers_are_bounded_and_near(vector, bits, clip_norm, key):
    largest = 2 ** (bits - 1) - 1
    step = clip_norm / largest
    factor = clip_factor(norm(vector), clip_norm)
    q = quantise(vector, step, key, largest, factor)
    assert q.dtype == np.int32
    assert np.abs(q).max() <= largest
    error = step * q.astype(np.float64) - factor * vector.astype(np.float64)
    assert exact_norm(error) <= step * math.sqrt(len(vector)) * (1 + 1e-9)
    assert np.abs(error).max() < step * (1 + 1e-9)


def test_numbers_beyond_the_largest_are_set_to_it():
    vector = float32(3.0, -3.0, 1e30, -1e30, 127.5, -127.5, 0.0)
    for key in (bytes(32), KEY, b"k" * 32):
        q = quantise(vector, 1.0, key, 127).tolist()
        assert q == [3, -3, 127, -127, 127, -127, 0]


def test_rounding_is_unbiased_where_float32_is_not():
    x, count = 300_000.3, 2_000_000
    share = x - 300_000  # of numbers that must be rounded up
    tolerance = 5 * math.sqrt(share * (1 - share) / count)
    q = quantise(np.ones(count, np.float32), 1 / x, KEY, LARGEST)
    assert set(np.unique(q)) == {300_000, 300_001}
    assert abs(float(q.mean()) - x) < tolerance < 0.002
    # The same test finds the bias of the shorter formula: half of float32's spacing, 1/32.
    u = keystream(KEY, 0, count) * 2.0**-32
    wrong = np.floor(np.float32(300_000.3125) + u.astype(np.float32))
    assert float(wrong.mean(dtype=np.float64)) - 300_000.3125 == pytest.approx(1 / 64, abs=0.002)


@pytest.mark.parametrize("x", [-0.75, -2.0, 0.5, 1e-3])
def test_the_mean_is_the_number_and_neighbours_are_rounded_independently(x):
    count = 1_000_000
    q = quantise(np.full(count, x, np.float32), 1.0, KEY, LARGEST)
    share = x - math.floor(x)
    assert abs(float(q.mean()) - np.float32(x)) <= 5 * math.sqrt(share * (1 - share) / count)
    for lag in (1, 2, 4, 16_384) if x == 0.5 else ():
        up = q - 0.5
        assert abs(float(np.mean(up[lag:] * up[:-lag]))) < 5 * 0.25 / math.sqrt(len(up) - lag)


def integer_norm_is_within(numbers, largest):
    """Compare Σ q² with (largest + √d)², by fractions on both sides of the root."""
    rest = sum(q * q for q in numbers) - largest**2 - len(numbers)  # ≤ 2 · largest · √d
    return rest <= 0 or rest**2 <= 4 * largest**2 * len(numbers)


def test_the_norm_of_few_whole_numbers_is_checked_exactly():
    """All of them, so also those whose squares sum up to one more than is allowed."""
    for largest, d in itertools.product(range(1, 5), range(1, 5)):
        for numbers in itertools.combinations_with_replacement(range(8), d):
            assert is_within(np.array(numbers, np.int32), largest) == integer_norm_is_within(numbers, largest)


def test_a_nan_that_signals_counts_as_zeros_without_a_warning():
    vector = np.array([0x7F800001, 0x3F800000], np.uint32).view(np.float32)
    assert not whole_numbers(vector, clip_norm=1.0, largest=7, key=KEY).any()


def test_the_check_of_the_norm_does_not_overflow():
    """200,000 entries of 2²³ − 1: their squares sum up to 1.4 · 10¹⁹, beyond 64 bits."""
    numbers = np.full(200_000, 2**23 - 1, np.int32)
    norm_of_them = math.isqrt(200_000 * (2**23 - 1) ** 2)
    root = math.isqrt(200_000)
    assert is_within(numbers, norm_of_them - root + 1)
    assert not is_within(numbers, norm_of_them - root - 1)


@given(FINITE, st.integers(2, 24), st.floats(1e-3, 1e3), st.floats(0, 1), st.floats(0.1, 100))
def test_whole_numbers_are_divided_clipped_scaled_and_within_the_sensitivity(vector, bits, clip_norm, scale, divisor):
    largest = 2 ** (bits - 1) - 1
    step = clip_norm / largest
    q = whole_numbers(vector, clip_norm=clip_norm, largest=largest, key=KEY, divisor=divisor, scale=scale)
    exact = [Fraction(float(x)) / Fraction(divisor) for x in vector]
    length = exact_norm(vector) / divisor
    clip = min(1.0, clip_norm / length) if length else 1.0
    expected = np.array([float(x) * clip * scale for x in exact])
    np.testing.assert_array_less(np.abs(step * q - expected), step * (1 + 1e-6))
    assert sum(int(n) ** 2 for n in q) <= (largest + math.sqrt(len(q))) ** 2 * (1 + 1e-12)


def test_numbers_beyond_the_sensitivity_become_zeros(monkeypatch):
    """As a clip that does not work would make them."""
    vector = np.full(100, 10.0, np.float32)
    assert whole_numbers(vector, clip_norm=1.0, largest=LARGEST, key=KEY).any()
    monkeypatch.setattr("offbeat_private.masks.fixed_point.clip_factor", lambda norm, clip_norm: 1.0)
    assert not whole_numbers(vector, clip_norm=1.0, largest=LARGEST, key=KEY).any()


def test_the_norm_does_not_depend_on_the_order_of_a_processors_additions():
    """32,768 running sums, each in the order of the vector; then the first half plus the second, and so on."""
    vector = np.random.default_rng(0).standard_normal(100_001).astype(np.float32)
    sums = [0.0] * 2**15
    for place, x in enumerate(vector.tolist()):
        sums[place % 2**15] += x * x
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [left + right for left, right in zip(sums[:half], sums[half:], strict=True)]
    assert norm(vector) == math.sqrt(sums[0])
