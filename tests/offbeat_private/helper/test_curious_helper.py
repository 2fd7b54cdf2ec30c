"""Attacks of a helper that keeps the seeds, on records alone."""

import hashlib
import itertools

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from offbeat_private.masks.envelope import parse
from offbeat_private.masks.helper_facts import EpochKey, Head
from offbeat_private.masks.keystream import keystream
from offbeat_private.masks.share import make_share

from tests.offbeat_private.helper.test_rules import make_terms

HPKE_KEY = X25519PrivateKey.from_private_bytes(bytes([77] * 32))


def test_no_guess_of_an_update_can_be_confirmed():
    """The helper knows the mask: a plain digest of the masked vector would tell it which guess is right."""
    terms = make_terms(length=2, bits=4, noise_multiplier=0.0)
    share = make_share(
        np.array([0.3, -0.5], np.float32),
        divisor=1.0,
        scale=1.0,
        terms=terms,
        visit=0,
        start_version=0,
        version=0,
        model=bytes(32),
        head=Head(0, bytes(32)),
        head_signature=bytes(64),
        epoch_key=EpochKey(0, HPKE_KEY.public_key().public_bytes_raw()),
        signing_key=Ed25519PrivateKey.from_private_bytes(bytes(range(32))),
    )
    envelope = parse(share.record)
    mask = keystream(envelope.open(HPKE_KEY), 0, terms.length)
    numbers = range(-terms.largest, terms.largest + 1)
    guesses = [mask + np.array(guess, np.int64).astype(np.uint32) for guess in itertools.product(numbers, repeat=2)]
    assert any(np.array_equal(guess, share.masked) for guess in guesses)
    digests = [hashlib.sha256(guess.tobytes()).digest() for guess in guesses]
    known = digests + [hashlib.sha256(digest).digest() for digest in digests]
    assert not any(digest in share.record for digest in known)
