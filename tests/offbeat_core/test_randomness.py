import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.randomness import Purpose, generator, integer, words

WORDS = st.integers(0, 2**32 - 1)
SEEDS = st.integers(0, 2**64 - 1)


def philox_by_hand(counter, key):
    """Philox4x32-10 in plain integers, as the paper writes it."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, 2**32)
        high1, low1 = divmod(0xCD9E8D57 * c2, 2**32)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [c0, c1, c2, c3]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_known_answers_of_random123(counter, key, expected):
    draw, visit, client, purpose = (int(word, 16) for word in counter.split())
    low, high = (int(word, 16) for word in key.split())
    drawn = words(low + (high << 32), purpose, client, visit, draw)
    assert [f"{word:08x}" for word in drawn[:, 0].tolist()] == expected.split()
    assert " ".join(f"{word:08x}" for word in philox_by_hand((draw, visit, client, purpose), (low, high))) == expected


@given(seed=SEEDS, purpose=WORDS, client=WORDS, visit=WORDS, draw=WORDS)
def test_words_are_philox_of_all_five_numbers(seed, purpose, client, visit, draw):
    expected = philox_by_hand((draw, visit, client, purpose), (seed % 2**32, seed >> 32))
    drawn = words(seed, purpose, client, visit, draw)
    assert drawn.dtype == np.uint64
    assert drawn[:, 0].tolist() == expected
    assert integer(seed, purpose, client, visit, draw) == ((expected[0] << 32) + expected[1]) // 2


def test_arrays_equal_scalars_and_broadcast():
    clients, visits, draws = np.arange(3)[:, None, None], np.array([0, 7])[:, None], np.arange(5)
    drawn = words(11, 4, clients, visits, draws)
    assert drawn.shape == (4, 3, 2, 5)
    for index in np.ndindex(3, 2, 5):
        client, visit, draw = index[0], (0, 7)[index[1]], index[2]
        assert drawn[:, *index].tolist() == words(11, 4, client, visit, draw)[:, 0].tolist()


def test_purposes_keep_their_numbers():
    first = ["INITIAL_MODEL", "PARTITION", "DEVICE_SPEED", "BANDWIDTH", "LOSSY_CLIENTS", "LOSS", "SELECTION"]
    names = [*first, "MINIBATCHES", "LAYERS"]
    assert [Purpose[name] for name in names] == [*range(1, 10)]
    assert len(Purpose.__members__) == len(set(Purpose))


@pytest.mark.parametrize("seed", [5, 2**63, 2**64 - 1])
def test_a_generator_is_numpys_philox_keyed_by_seed_and_purpose(seed):
    key = np.array([seed, int(Purpose.PARTITION)], dtype=np.uint64)
    expected = np.random.Generator(np.random.Philox(key=key)).random(4)
    assert generator(seed, Purpose.PARTITION).random(4).tolist() == expected.tolist()
