import tracemalloc

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from offbeat_private.helper.helper import open_seeds, sum_of_masks
from offbeat_private.helper.helper_refusal import HelperRefusal
from offbeat_private.masks.envelope import parse
from offbeat_private.masks.helper_facts import Head
from offbeat_private.masks.keystream import keystream

from tests.offbeat_private.helper.conftest import CLIENT_KEYS, make_record, seed_of
from tests.offbeat_private.helper.test_rules import make_terms

KEYS = {epoch: X25519PrivateKey.from_private_bytes(bytes([50 + epoch] * 32)) for epoch in (0, 1)}


def envelope(client, epoch, sealed_for):
    public_key = KEYS[sealed_for].public_key().public_bytes_raw()
    return parse(make_record(make_terms(), Head(0, bytes(32)), bytes(64), epoch, public_key, client, 4))


def test_each_seed_is_opened_with_its_epochs_key():
    seeds = open_seeds([envelope(0, 0, 0), envelope(1, 1, 1)], KEYS.__getitem__)
    assert seeds == [seed_of(0, 4), seed_of(1, 4)]


def test_a_seed_for_another_key_or_with_another_info_names_its_client():
    with pytest.raises(HelperRefusal) as caught:
        open_seeds([envelope(0, 0, 0), envelope(1, 1, 0)], KEYS.__getitem__)
    assert (caught.value.kind, caught.value.client) == ("sealed-wrongly", CLIENT_KEYS[1])
    good = envelope(0, 0, 0)
    for changed in (
        good._replace(info=bytes([good.info[0] ^ 1]) + good.info[1:]),
        good._replace(ciphertext=good.ciphertext[:-1] + bytes([good.ciphertext[-1] ^ 1])),
    ):
        with pytest.raises(HelperRefusal, match="cannot be opened"):
            open_seeds([changed], KEYS.__getitem__)


def test_noise_is_subtracted_and_sums_wrap_around():
    seeds = [bytes([1] * 32), bytes([2] * 32)]
    masks = [keystream(seed, 0, 5).tolist() for seed in seeds]
    steps = [0, 1, -1, 2_000_000, -(2**31) - 5]
    noise = np.array(steps)
    total = sum_of_masks(seeds, 5, noise)
    assert total.tolist() == [(a + b - n) % 2**32 for a, b, n in zip(*masks, steps, strict=True)]
    assert noise.tolist() == steps
    assert sum_of_masks(seeds, 5, None).tolist() == [(a + b) % 2**32 for a, b in zip(*masks, strict=True)]


def test_memory_does_not_depend_on_the_number_of_masks():
    def peak(count):
        tracemalloc.start()
        sum_of_masks([bytes([client] * 32) for client in range(count)], 500_000, None)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(1)
    assert peak(20) < peak(2) + 100_000 < 4 * 500_000 + 2_000_000
