import math

import numpy as np
import pytest
from offbeat_core.compression import compress_with_memory, decode, qsgd, random_k, sign, top_k

CONTRACTIONS = [top_k(0.1), top_k(0.001), top_k(1), random_k(0.3, scaled=False), qsgd(4), qsgd(12), sign()]


def deltas(count, length=49):
    return list(np.random.default_rng(5).standard_normal((count, length), np.float32))


@pytest.mark.parametrize("compressor", CONTRACTIONS, ids=str)
def test_sent_updates_and_memory_add_up(compressor):
    memory, sent, total = None, np.zeros(49), np.zeros(49)
    for seed, delta in enumerate(deltas(40)):
        vector, memory, _ = compress_with_memory(compressor, memory, delta, seed)
        sent += vector
        total += delta
    assert np.allclose(sent + memory, total, rtol=0, atol=1e-4)
    assert (np.linalg.norm(memory) == 0) == (compressor == top_k(1))


def test_by_hand():
    sent, memory, _ = compress_with_memory(top_k(0.3), None, np.array([3.0, -2.0, 1.0], np.float32), seed=0)
    assert (sent.tolist(), memory.tolist()) == ([3.0, 0.0, 0.0], [0.0, -2.0, 1.0])
    sent, memory, _ = compress_with_memory(top_k(0.3), memory, np.array([1.0, -1.0, 1.0], np.float32), seed=0)
    assert (sent.tolist(), memory.tolist()) == ([0.0, -3.0, 0.0], [1.0, 0.0, 2.0])


@pytest.mark.parametrize("compressor", CONTRACTIONS, ids=str)
def test_the_memory_of_a_contraction_stays_bounded(compressor):
    share = {"top_k": compressor.parameters.get("share"), "random_k": 0.3, "qsgd": 0.75, "sign": 1 / 49}[
        compressor.name
    ]
    memory, largest = None, 0.0
    for seed, delta in enumerate(deltas(100)):
        largest = max(largest, np.linalg.norm(delta))
        _, memory, _ = compress_with_memory(compressor, memory, delta, seed)
    # ‖m‖² ≤ 4(1 − δ)/δ² max ‖Δ‖² (Karimireddy et al. 2019, Lemma 3).
    assert np.linalg.norm(memory) <= 2 * math.sqrt(1 - share) / share * largest


@pytest.mark.parametrize("compressor", CONTRACTIONS, ids=str)
def test_no_memory_is_a_memory_of_zeros_and_nothing_is_changed(compressor):
    (delta,) = deltas(1)
    before = delta.copy()
    vector, memory, encoded = compress_with_memory(compressor, None, delta, seed=7)
    _, same_memory, same = compress_with_memory(compressor, np.zeros(49, np.float32), delta, seed=7)
    assert encoded == same == compressor.encode(delta, seed=7)
    assert np.array_equal(memory, same_memory)
    assert np.array_equal(vector, decode(encoded))
    assert np.array_equal(delta, before)
    assert not np.shares_memory(memory, delta)


@pytest.mark.parametrize(
    ("compressor", "name"),
    [
        (random_k(1.0), r"random_k\(share=1.0, scaled=True\)"),
        (qsgd(3), r"qsgd\(bits=3\)"),
    ],
)
def test_other_compressors_are_refused(compressor, name):
    with pytest.raises(ValueError, match=f"error feedback needs a contraction, which {name} is not for d = 49"):
        compress_with_memory(compressor, None, deltas(1)[0], seed=0)


def test_a_memory_of_another_length_is_refused():
    with pytest.raises(ValueError, match=r"the memory must have the update's shape \(49,\), got \(1,\)"):
        compress_with_memory(sign(), np.zeros(1, np.float32), deltas(1)[0], seed=0)


@pytest.mark.parametrize(("memory", "delta"), [(3e38, 3e38), (0.0, math.nan), (math.inf, 0.0)])
def test_values_that_are_not_finite_are_refused(memory, delta):
    with pytest.raises(ValueError, match="the vector contains NaN or infinity"):
        compress_with_memory(sign(), np.full((2,), memory, np.float32), np.full((2,), delta, np.float32), seed=0)
