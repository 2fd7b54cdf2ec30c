import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from offbeat_private.masks.epoch_key import EPOCH_KEY_BYTES, EpochKey, sign_epoch_key, verify_epoch_key

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


@pytest.mark.parametrize("length", [0, 99, 101])
def test_other_lengths_are_refused(make_terms, helper_key, length):
    signed = sign_epoch_key(KEY, make_terms(), helper_key)
    with pytest.raises(ValueError, match=rf"^a signed key has 100 bytes, got {length}$"):
        verify_epoch_key((2 * signed)[:length], make_terms())


@pytest.mark.parametrize("key", [EpochKey(-1, b"x" * 32), EpochKey(2**32, b"x" * 32), EpochKey(0, b"x" * 31)])
def test_values_out_of_range_are_refused(make_terms, helper_key, key):
    with pytest.raises(ValueError, match="an epoch's key has 32 bytes, and its number is in 0 … 2³² − 1"):
        sign_epoch_key(key, make_terms(), helper_key)
