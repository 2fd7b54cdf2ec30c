"""Shares of clients, summed by a server, opened by a helper: the sum of the updates, and the noise."""

from contextlib import closing

import numpy as np
import pytest
from offbeat_private.helper.helper import Helper
from offbeat_private.masks.helper_facts import verify_epoch_key
from offbeat_private.masks.share import make_share

from tests.offbeat_private.helper.conftest import KEYS, enrol_clients

LENGTH = 5000


def opened_sum(folder, deltas, **terms):
    """Return the sum that a server gets, in the updates' unit, and the terms."""
    enrol_clients(folder, length=LENGTH, **terms)
    with closing(Helper(folder)) as helper:
        facts = helper.facts()
        shares = [
            make_share(
                delta, divisor=1.0, scale=1.0, terms=helper.terms, visit=0, start_version=0, version=0,
                model=bytes(32), head=facts.head, head_signature=facts.signature,
                epoch_key=verify_epoch_key(facts.epoch_key, helper.terms), signing_key=KEYS[client],
            )
            for client, delta in enumerate(deltas)
        ]  # fmt: skip
        answer = helper.open(1, [share.record for share in shares])
        total = sum(share.masked for share in shares) - np.frombuffer(answer.path.read_bytes(), "<u4")
        return total.view(np.int32) * helper.terms.step, helper.terms


@pytest.fixture
def deltas():
    vectors = np.random.default_rng(1).normal(size=(4, LENGTH)).astype(np.float32)
    return vectors / (2 * np.linalg.norm(vectors, axis=1, keepdims=True))  # of norm ½: nothing is clipped


def test_without_noise_the_sum_differs_by_rounding_alone(tmp_path, deltas):
    total, terms = opened_sum(tmp_path, deltas, noise_multiplier=0.0)
    assert np.linalg.norm(total - deltas.sum(axis=0)) <= len(deltas) * terms.step * LENGTH**0.5


def test_the_sum_has_noise_of_the_announced_size(tmp_path, deltas):
    total, terms = opened_sum(tmp_path, deltas, noise_multiplier=3.0, bits=16)
    noise = (total - deltas.sum(axis=0)) / (3.0 * (1 + terms.step * LENGTH**0.5))
    assert abs(noise @ noise - LENGTH) < 5 * (2 * LENGTH) ** 0.5
