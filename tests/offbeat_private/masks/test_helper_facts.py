import re
from hashlib import sha256

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from offbeat_private.masks.helper_facts import (
    EPOCH_KEY_BYTES,
    EpochKey,
    Head,
    batch_digest,
    first_head,
    next_head,
    sign_epoch_key,
    verify_epoch_key,
)

TERMS = bytes([7] * 32)
HEAD = Head(3, b"h" * 32)


def test_only_the_terms_helper_signs_heads(helper_key, client_key):
    message = b"offbeat-head-v1" + TERMS + b"\0\0\0\0\0\0\0\3" + b"h" * 32
    assert HEAD.signed_message(TERMS) == message
    helper = helper_key.public_key().public_bytes_raw()
    signature = helper_key.sign(message)
    HEAD.check_signature(signature, helper, TERMS)
    for head, signed, terms in [
        (Head(4, b"h" * 32), signature, TERMS),
        (Head(3, b"i" * 32), signature, TERMS),
        (HEAD, signature, bytes(32)),
        (HEAD, client_key.sign(message), TERMS),
        (HEAD, helper_key.sign(message[1:]), TERMS),
        (HEAD, signature[:-1], TERMS),
        (HEAD, b"", TERMS),
    ]:
        with pytest.raises(ValueError, match=re.escape("the head was not signed by the helper of the terms")):
            head.check_signature(signed, helper, terms)


RUN = bytes(range(16))


def test_a_batch_digest_is_over_run_number_and_sorted_records():
    expected = sha256(b"offbeat-batch-v1" + RUN + b"\0\0\0\0\0\0\1\2" + b"aabb").digest()
    assert batch_digest(RUN, 258, [b"bb", b"aa"]) == batch_digest(RUN, 258, [b"aa", b"bb"]) == expected
    assert len({expected, batch_digest(bytes(16), 258, [b"aa", b"bb"]), batch_digest(RUN, 1, [b"aa", b"bb"])}) == 3


def test_heads_chain_batches_and_answers():
    first = first_head(bytes(32))
    assert first == Head(0, sha256(b"offbeat-chain-v1" + bytes(32)).digest())
    second = next_head(first, b"b" * 32, b"a" * 32)
    content = b"offbeat-chain-v1" + b"\0\0\0\0\0\0\0\1" + first.digest + b"b" * 32 + b"a" * 32
    assert second == Head(1, sha256(content).digest())


KEY = EpochKey(258, b"x" * 32)


def test_the_layout_by_hand(make_terms, helper_key):
    terms = make_terms()
    signed = sign_epoch_key(KEY, terms, helper_key)
    assert signed[:36] == b"\x00\x00\x01\x02" + b"x" * 32
    helper_key.public_key().verify(signed[36:], b"offbeat-epoch-key-v1" + terms.digest + signed[:36])
    assert len(signed) == EPOCH_KEY_BYTES == 100
    assert verify_epoch_key(signed, terms) == KEY


def test_no_byte_can_be_changed(make_terms, helper_key):
    signed = sign_epoch_key(KEY, make_terms(), helper_key)
    for bit in range(0, 8 * EPOCH_KEY_BYTES, 5):
        changed = bytearray(signed)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"^the epoch key was not signed by the helper of the terms$"):
            verify_epoch_key(bytes(changed), make_terms())


def test_a_key_of_the_server_or_of_other_terms_is_refused(make_terms, helper_key):
    signed = sign_epoch_key(KEY, make_terms(), helper_key)
    with pytest.raises(ValueError, match="not signed by the helper of the terms"):
        verify_epoch_key(signed, make_terms(run=b"q" * 16))
    with pytest.raises(ValueError, match="the signing key does not belong to the helper_key of the terms"):
        sign_epoch_key(KEY, make_terms(), Ed25519PrivateKey.generate())
    for key in (EpochKey(-1, b"x" * 32), EpochKey(2**32, b"x" * 32), EpochKey(0, b"x" * 31)):
        with pytest.raises(ValueError, match="an epoch's key has 32 bytes, and its number is in 0 … 2³² − 1"):
            sign_epoch_key(key, make_terms(), helper_key)


@pytest.mark.parametrize("length", [0, 99, 101])
def test_other_lengths_are_refused(make_terms, helper_key, length):
    signed = sign_epoch_key(KEY, make_terms(), helper_key)
    with pytest.raises(ValueError, match=rf"^a signed key has 100 bytes, got {length}$"):
        verify_epoch_key((2 * signed)[:length], make_terms())
