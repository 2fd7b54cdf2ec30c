import hashlib
import math
import os
import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from offbeat_private.masks import share as module
from offbeat_private.masks.envelope import parse
from offbeat_private.masks.fixed_point import quantise, whole_numbers
from offbeat_private.masks.helper_facts import EpochKey, Head
from offbeat_private.masks.keystream import keystream
from offbeat_private.masks.share import make_share, vector_digest


@pytest.fixture(scope="session")
def share_of(make_terms, client_key, hpke_key):
    """Return a function that makes the share of a delta, with some values changed."""

    def share(delta, terms=None, **changed):
        values = {
            "divisor": 1.0,
            "scale": 1.0,
            "terms": terms or make_terms(length=len(delta)),
            "visit": 6,
            "start_version": 7,
            "version": 9,
            "model": b"m" * 32,
            "head": Head(8, b"h" * 32),
            "head_signature": b"s" * 64,
            "epoch_key": EpochKey(3, hpke_key.public_key().public_bytes_raw()),
            "signing_key": client_key,
        }
        return make_share(delta, **values | changed)

    return share


@pytest.fixture(scope="session")
def unmasked(hpke_key):
    """Return a function that opens a share as the helper would; it returns the quantised vector."""

    def unmask(share):
        seed = parse(share.record).open(hpke_key)
        return (share.masked - keystream(seed, 0, len(share.masked))).view(np.int32)

    return unmask


def normal(length, scale=1.0):
    return (scale * np.random.default_rng(0).standard_normal(length)).astype(np.float32)


def test_the_record_binds_the_share(share_of, make_terms, client_key):
    terms = make_terms()
    share = share_of(normal(1000), terms)
    envelope = parse(share.record)
    envelope.check_signature()
    assert envelope.head_signature == b"s" * 64
    assert share.masked.dtype == np.uint32
    assert share.digest == hashlib.sha256(share.masked.tobytes()).digest()
    assert envelope.binding._asdict() == {
        "terms": terms.digest,
        "run": terms.run,
        "client": client_key.public_key().public_bytes_raw(),
        "visit": 6,
        "start_version": 7,
        "version": 9,
        "model": b"m" * 32,
        "vector": hashlib.sha256(b"offbeat-vector-v1" + share.salt + share.digest).digest(),
        "head_number": 8,
        "head": b"h" * 32,
        "epoch": 3,
    }


def test_masked_minus_mask_is_the_quantised_vector(share_of, unmasked, make_terms, monkeypatch):
    drawn = []

    def urandom(count):
        drawn.append(bytes([len(drawn)]) * count)
        return drawn[-1]

    monkeypatch.setattr(os, "urandom", urandom)
    delta, terms = normal(20_000, 0.001), make_terms(length=20_000)  # of norm 0.14: not clipped
    delta.flags.writeable = False
    assert unmasked(share_of(delta, terms)).tolist() == quantise(delta, terms.step, drawn[0], terms.largest).tolist()
    assert [len(key) for key in drawn] == [32, 32, 32]  # for the rounding, the mask, the commitment


def test_every_share_has_fresh_keys(share_of, unmasked, hpke_key, monkeypatch):
    used = []
    monkeypatch.setattr(
        module, "whole_numbers", lambda *a, **named: used.append(named["key"]) or whole_numbers(*a, **named)
    )
    delta = normal(1000, 0.001)
    shares = [share_of(delta) for _ in range(3)]
    seeds = [parse(share.record).open(hpke_key) for share in shares]
    assert len({*used, *seeds, *(share.salt for share in shares)}) == 9
    assert len({unmasked(share).tobytes() for share in shares}) == 3


@given(
    arrays(np.float32, st.integers(1, 40), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)),
    st.floats(0.01, 100),
    st.floats(0.125, 1),
    st.floats(1e-3, 1e3),
    st.integers(8, 24),
)
def test_divided_then_clipped_then_scaled(share_of, unmasked, make_terms, delta, divisor, scale, clip_norm, bits):
    terms = make_terms(length=len(delta), clip_norm=clip_norm, bits=bits, noise_multiplier=1)
    vector = delta.astype(np.float64) / divisor
    norm = math.sqrt(math.fsum(vector**2))
    expected = scale * vector * min(1, clip_norm / norm if norm else 1)
    q = unmasked(share_of(delta, terms, divisor=divisor, scale=scale))
    assert np.abs(q).max() <= terms.largest
    assert np.linalg.norm(terms.step * q - expected) <= terms.step * math.sqrt(len(delta)) * (1 + 1e-9)


def test_masks_of_a_batch_wrap_around_and_vanish(share_of, unmasked):
    shares = [share_of(normal(1000, 0.01 * (client + 1))) for client in range(10)]
    total = np.zeros(1000, np.uint32)
    plain = np.zeros(1000, np.int64)
    masked = np.zeros(1000, np.int64)
    for share in shares:
        total += share.masked
        total -= share.masked - unmasked(share).view(np.uint32)
        masked += share.masked
        plain += unmasked(share)
    assert (masked >= 2**32).all()  # the sum of masks did wrap
    assert total.view(np.int32).tolist() == plain.tolist()


def test_the_digest_is_over_little_endian_words():
    vector = np.array([1, 0x01020304], np.uint32)
    assert vector_digest(vector) == hashlib.sha256(b"\1\0\0\0\4\3\2\1").digest()


def test_an_update_that_is_not_finite_is_sent_as_zeros(share_of, unmasked):
    delta = normal(1000)
    delta[999] = np.nan
    share = share_of(delta)
    assert not unmasked(share).any()
    assert len(np.unique(share.masked)) > 990  # and looks like any other


def test_one_copy_of_the_vector_is_made(share_of):
    delta = normal(2_000_000)
    tracemalloc.start()
    try:
        share_of(delta)
        assert tracemalloc.get_traced_memory()[1] < 1.25 * delta.nbytes
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scale": 0.12}, r"scale must be in 0\.125 … 1, got 0\.12"),
        ({"divisor": 0.0}, "divisor must be greater than 0"),
        ({"version": 6}, "version 6 of the share is older than start_version 7"),
        ({"visit": -1}, "visit of a share must be in"),
        ({"model": b"m"}, "model of a share must have 32 bytes"),
        ({"epoch_key": EpochKey(3, bytes(31))}, "32 bytes"),
        *(
            ({"delta": delta}, r"the delta must be float32 \(1000,\), got float")
            for delta in (np.zeros(999, np.float32), np.zeros(1000), np.zeros((1, 1000), np.float32))
        ),
    ],
)
def test_values_out_of_range_are_refused(share_of, make_terms, changed, message):
    delta = changed.pop("delta", normal(1000))
    with pytest.raises(ValueError, match=message):
        share_of(delta, make_terms(), **changed)


def test_differences_of_shares_add_up_to_the_last_update(share_of, make_terms, unmasked):
    terms = make_terms(length=1000, noise_multiplier=0.0, payload="difference")
    total, previous = np.zeros(1000, np.int32), None
    for number in range(4):
        share = share_of(normal(1000, 10.0**-number), terms, previous=previous)
        total += unmasked(share)
        previous = share.quantised
        assert not np.shares_memory(share.masked, previous)
        assert total.tolist() == previous.tolist()
        found = np.linalg.norm(previous * terms.step)
        assert found == pytest.approx(min(1.0, np.linalg.norm(normal(1000, 10.0**-number))), rel=1e-3)
    assert share_of(normal(1000)).quantised is None


def test_no_guess_of_an_update_can_be_confirmed(share_of, make_terms, hpke_key):
    """The helper knows the mask: a plain digest of the masked vector would tell it which guess is right."""
    terms = make_terms(length=2, bits=4, noise_multiplier=0.0)
    share = share_of(np.array([0.3, -0.5], np.float32), terms)
    mask_of_it = keystream(parse(share.record).open(hpke_key), 0, 2)
    numbers = range(-terms.largest, terms.largest + 1)
    guesses = [mask_of_it + np.array(pair, np.int64).astype(np.uint32) for pair in product(numbers, repeat=2)]
    assert any(np.array_equal(guess, share.masked) for guess in guesses)
    digests = [hashlib.sha256(guess.tobytes()).digest() for guess in guesses]
    known = digests + [hashlib.sha256(digest).digest() for digest in digests]
    assert not any(digest in share.record for digest in known)
