import math

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from offbeat_private.masks.keystream import keystream
from offbeat_private.noise.gaussian_words import ERROR, LARGEST, WORDS, exact_gaussian, gaussians
from scipy.stats import kstest

EDGES = (0, 1, 2**31, 2**52 + 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1, 3 * 2**62, 2**64 - 2**11, 2**64 - 1)
KEY = bytes(range(32))


def words_of(w: int, v: int) -> NDArray[np.uint32]:
    """Return the words of one pair, from its two numbers of 128 bits."""
    return np.array([w >> 64, v >> 64, w % 2**64, v % 2**64], "<u8").view("<u4").astype(np.uint32)


@pytest.fixture(scope="module")
def context():
    context = mpmath.mp.clone()
    context.prec = 256
    return context


def by_definition(w: int, v: int, context) -> tuple:
    """Return r cos θ and r sin θ of the module's first lines."""
    signed = v - 2**128 if v >= 2**127 else v
    u = (context.mpf(w) + 0.5) / 2**128
    theta = 2 * context.pi * (context.mpf(signed) + 0.5) / 2**128
    radius = context.sqrt(-2 * context.ln(u))
    return radius * context.cos(theta), radius * context.sin(theta)


@pytest.mark.parametrize("low", [0, 1, 2**64 - 1])
def test_both_are_box_and_mullers_also_at_the_edges(low, context):
    for w in EDGES:
        for v in EDGES:
            pair = (w << 64) + low, (v << 64) + low
            words = words_of(*pair)
            for index, expected in enumerate(by_definition(*pair, context)):
                exact = exact_gaussian(words, index, context)
                assert abs(exact - expected) < 1e-60
                assert abs(gaussians(words)[index] - expected) < ERROR / 4
                assert abs(exact) < LARGEST


def test_the_error_is_far_below_its_bound(context):
    words = keystream(KEY, 1, WORDS * 1500)
    words.flags.writeable = False
    found = gaussians(words)
    worst = max(abs(exact_gaussian(words, index, context) - found[index]) for index in range(3000))
    assert worst < ERROR / 16


def test_the_numbers_of_the_pairs_are_at_their_places():
    pairs = [(5 << 64 | 7, 11 << 64 | 13), (17 << 64 | 19, 2**127 + 23)]
    each = [words_of(*pair) for pair in pairs]
    together = np.stack(each).reshape(2, 4, 2).swapaxes(0, 1).ravel()  # two words of 32 bits make one of 64
    expected = [gaussians(words)[index] for index in (0, 1) for words in each]
    assert gaussians(together).tolist() == expected


def test_they_are_gaussian():
    values = gaussians(keystream(KEY, 3, WORDS * 500_000))
    assert kstest(values, "norm").pvalue > 1e-3
    assert abs(values.mean()) < 5 / math.sqrt(len(values))
    assert values.var() == pytest.approx(1, abs=5 * math.sqrt(2 / len(values)))
