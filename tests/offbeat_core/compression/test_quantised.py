import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.compression import decode, qsgd, sign


def through(compressor, vector, seed=0):
    return decode(compressor.encode(vector, seed))


def read_qsgd(payload, bits, length):
    """Return the norm and the signed levels, one bit after the other."""
    (norm,) = struct.unpack("<f", payload[:4])
    whole = int.from_bytes(payload[4:], "little")
    half = 2 ** (bits - 1) - 1
    return norm, [(whole >> bits * entry) % 2**bits - half for entry in range(length)]


def norm_of(vector):
    return math.sqrt(math.fsum(entry**2 for entry in vector.tolist()))


@given(data=st.data(), bits=st.integers(2, 16), seed=st.integers(0, 2**64 - 1))
def test_qsgd_sends_the_norm_and_a_neighbouring_level(vectors, data, bits, seed):
    vector = data.draw(vectors)
    levels = 2 ** (bits - 1) - 1
    encoded = qsgd(bits).encode(vector, seed)
    norm, sent = read_qsgd(encoded.payload, bits, len(vector))
    assert norm == pytest.approx(norm_of(vector), rel=1e-7, abs=1e-45)
    for entry, level in zip(vector.tolist(), sent, strict=True):
        assert abs(level) <= levels
        assert level * entry >= 0
        ratio = abs(entry) * levels / norm if norm else 0.0
        assert math.floor(ratio * (1 - 1e-12)) <= abs(level) <= math.ceil(ratio * (1 + 1e-12))
    assert decode(encoded).tolist() == [np.float32(norm * level / levels) for level in sent]


@pytest.mark.parametrize("bits", [2, 3, 5])
def test_qsgd_is_unbiased_and_within_its_variance_bound(bits):
    vector, seeds = np.random.default_rng(3).standard_normal(24, np.float32), 2000
    sent = np.stack([through(qsgd(bits), vector, seed) for seed in range(seeds)]).astype(np.float64)
    whole, levels = vector.astype(np.float64), 2 ** (bits - 1) - 1
    norm = norm_of(vector)
    up = (np.abs(whole) * levels / norm) % 1
    variance = up * (1 - up) * (norm / levels) ** 2
    assert (np.abs(sent.mean(0) - whole) < 4.5 * np.sqrt(variance / seeds) + 1e-6).all()
    error = np.square(sent - whole).sum(1).mean()
    assert error == pytest.approx(variance.sum(), rel=0.06)
    assert error <= min(24 / levels**2, math.sqrt(24) / levels) * norm**2


def test_qsgd_of_a_single_nonzero_entry_is_exact():
    for bits in (2, 3, 16):
        for entry in (-7.3, 1e-45, 3e38, 0.0):
            vector = np.array([0.0, entry, 0.0], np.float32)
            assert through(qsgd(bits), vector).tolist() == vector.tolist()


def test_a_norm_beyond_float32_is_refused_and_one_below_is_not_lost():
    with pytest.raises(ValueError, match="the norm must be finite in 32 bits"):
        qsgd(4).encode(np.full((4,), 3e38, np.float32), seed=0)
    assert through(qsgd(4), np.full((4,), 1e-30, np.float32)).astype(bool).sum() == 4
    large = np.full((4,), 1e30, np.float32)
    assert norm_of(through(qsgd(16), large)) == pytest.approx(norm_of(large), rel=1e-3)


@pytest.mark.parametrize("bits", [1, 17, 2.0, "8", True])
def test_bits_out_of_range_are_refused(bits):
    with pytest.raises(ValueError, match=r"bits must be a whole number in 2 … 16, got"):
        qsgd(bits)


@pytest.mark.parametrize(("bits", "levels"), [(2, 1), (3, 3), (8, 127), (16, 32767)])
def test_levels_of_qsgd(bits, levels):
    assert qsgd(bits).levels == levels
    assert qsgd(bits).is_contraction(levels**2)
    assert not qsgd(bits).is_contraction(levels**2 + 1)


def test_the_sum_of_magnitudes_may_be_beyond_float32():
    largest = float(np.finfo(np.float32).max)
    assert through(sign(), np.array([largest, -largest, largest], np.float32)).tolist() == [largest, -largest, largest]


@given(data=st.data())
def test_sign_is_the_mean_magnitude_with_each_sign(vectors, data):
    vector = data.draw(vectors)
    scale = np.float32(math.fsum(abs(entry) for entry in vector.tolist()) / len(vector))
    got = through(sign(), vector)
    assert got.tolist() == pytest.approx([-scale if entry < 0 else scale for entry in vector.tolist()], rel=2e-7, abs=0)
    assert sign().is_contraction(10**6)
