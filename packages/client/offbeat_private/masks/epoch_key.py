"""The helper's HPKE keys, which reach clients through the server."""

import struct
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from offbeat_private.terms import Terms

_KEY = struct.Struct(">I32s")
_SIGNATURE_BYTES = 64
_SIGNED = b"offbeat-epoch-key-v1"

EPOCH_KEY_BYTES = _KEY.size + _SIGNATURE_BYTES
"""Length of a signed key."""


class EpochKey(NamedTuple):
    """The helper's X25519 public key, 32 bytes, of one epoch."""

    epoch: int
    public_key: bytes


def sign_epoch_key(key: EpochKey, terms: Terms, signing_key: Ed25519PrivateKey) -> bytes:
    """Return the signed key, 100 bytes: epoch (big-endian), public key, signature.

    The Ed25519 signature is over ``offbeat-epoch-key-v1 ‖ terms digest ‖ epoch ‖ public key``.

    Raises:
        ValueError: A value is out of range, or the signing key is not the helper's.
    """
    if not 0 <= key.epoch < 1 << 32 or len(key.public_key) != 32:
        raise ValueError(f"an epoch's key has 32 bytes, and its number is in 0 … 2³² − 1, got {key}")
    if signing_key.public_key().public_bytes_raw() != terms.helper_key:
        raise ValueError("the signing key does not belong to the helper_key of the terms")
    packed = _KEY.pack(*key)
    return packed + signing_key.sign(_SIGNED + terms.digest + packed)


def verify_epoch_key(signed: bytes, terms: Terms) -> EpochKey:
    """Return the key of untrusted bytes that the helper of the terms signed.

    Without this check the server could hand out a key of its own and open every mask.

    Raises:
        ValueError: The bytes are malformed, or the signature is not the helper's for these terms.
    """
    if len(signed) != EPOCH_KEY_BYTES:
        raise ValueError(f"a signed key has {EPOCH_KEY_BYTES} bytes, got {len(signed)}")
    packed, signature = signed[: _KEY.size], signed[_KEY.size :]
    try:
        Ed25519PublicKey.from_public_bytes(terms.helper_key).verify(signature, _SIGNED + terms.digest + packed)
    except InvalidSignature:
        raise ValueError("the epoch key was not signed by the helper of the terms") from None
    return EpochKey(*_KEY.unpack(packed))
