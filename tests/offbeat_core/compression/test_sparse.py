import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.compression import decode, random_k, top_k


def through(compressor, vector, seed=0):
    return decode(compressor.encode(vector, seed))


def largest(vector, count):
    values = vector.tolist()
    kept = sorted(range(len(values)), key=lambda index: (-abs(values[index]), index))[:count]
    return [value if index in kept else 0.0 for index, value in enumerate(values)]


@pytest.mark.parametrize(
    ("share", "length", "kept"),
    [(0.1, 10, 1), (0.1, 11, 2), (5e-324, 1, 1), (1, 7, 7), (0.999, 7, 7), (0.07, 100, 7)],
)
def test_how_many_are_kept(share, length, kept):
    vector = np.arange(1, length + 1, dtype=np.float32)
    for compressor in (top_k(share), random_k(share), random_k(share, scaled=False)):
        assert compressor.kept(length) == kept
        assert through(compressor, vector).astype(bool).sum() == kept


@given(data=st.data(), share=st.floats(0, 1, exclude_min=True))
def test_top_k_keeps_the_largest_exactly_and_the_first_of_equal_ones(vectors, data, share):
    vector = data.draw(vectors)
    assert through(top_k(share), vector).tolist() == largest(vector, max(1, math.ceil(round(share * len(vector), 9))))


def test_top_k_of_many_entries_with_ties():
    vector = (np.random.default_rng(1).standard_normal(50_000, np.float32) * 4).round()
    kept = np.lexsort((np.arange(50_000), -np.abs(vector)))[:500]
    expected = np.zeros(50_000, np.float32)
    expected[kept] = vector[kept]
    assert (through(top_k(0.01), vector) == expected).all()


@pytest.mark.parametrize("compressor", [top_k(1), random_k(1), random_k(1, scaled=False)])
def test_a_share_of_1_sends_all(compressor):
    vector = np.array([1.5, -0.0, 1e-45, -3e38, 7.0], np.float32)
    assert through(compressor, vector).tobytes() == vector.tobytes()


@given(data=st.data(), share=st.floats(0, 1, exclude_min=True), seed=st.integers(0, 2**64 - 1), scaled=st.booleans())
def test_random_k_sends_entries_unscaled_or_times_d_over_k(vectors, data, share, seed, scaled):
    vector = data.draw(vectors)
    count = max(1, math.ceil(share * len(vector)))
    factor = len(vector) / count if scaled else 1.0
    expected = [np.float32(factor * entry) for entry in vector.tolist()]
    got = through(random_k(share, scaled), vector, seed).tolist()
    assert sum(value != 0 for value in got) <= count
    assert all(
        value == 0 or value == pytest.approx(wanted, rel=2e-7, abs=0)
        for value, wanted in zip(got, expected, strict=True)
    )


def test_random_k_sends_every_set_equally_often():
    vector, seeds = np.arange(1.0, 5.0, dtype=np.float32), 3000
    found: dict[tuple[int, ...], int] = {}
    for seed in range(seeds):
        kept = tuple(through(random_k(0.5, scaled=False), vector, seed).nonzero()[0].tolist())
        found[kept] = found.get(kept, 0) + 1
    assert len(found) == 6
    standard_error = math.sqrt(seeds * 1 / 6 * 5 / 6)
    assert all(abs(times - seeds / 6) < 4.5 * standard_error for times in found.values())


def test_scaled_random_k_is_unbiased_with_the_variance_that_it_states():
    vector, seeds = np.random.default_rng(0).standard_normal(20, np.float32), 2000
    sent = np.stack([through(random_k(0.25), vector, seed) for seed in range(seeds)]).astype(np.float64)
    whole = vector.astype(np.float64)
    standard_error = np.abs(whole) * math.sqrt((20 / 5 - 1) / seeds)
    assert (np.abs(sent.mean(0) - whole) < 4.5 * standard_error).all()
    error = np.square(sent - whole).sum(1).mean()
    assert error == pytest.approx((20 / 5 - 1) * np.square(whole).sum(), rel=0.06)


def test_scaling_beyond_float32_is_refused():
    with pytest.raises(ValueError, match="the values times d/k must be finite in 32 bits"):
        random_k(0.5).encode(np.full((4,), 2e38, np.float32), seed=0)
    assert through(random_k(0.5, scaled=False), np.full((4,), 2e38, np.float32)).astype(bool).sum() == 2


@pytest.mark.parametrize("share", [0, 1.0000001, math.nan])
def test_parameters_out_of_range_are_refused(share):
    for make in (top_k, random_k):
        with pytest.raises(ValueError, match=r"share must be in \(0, 1\], got"):
            make(share)
    with pytest.raises(ValueError, match="scaled must be true or false, got 'no'"):
        random_k(0.5, scaled="no")


def test_which_are_contractions():
    for compressor in (top_k(0.01), random_k(0.01, scaled=False)):
        assert all(map(compressor.is_contraction, (1, 10**6)))
    for compressor in (random_k(0.01), random_k(1)):
        assert not any(map(compressor.is_contraction, (1, 10**6)))
