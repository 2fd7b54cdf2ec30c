"""Facts that the helper signs: heads of its chain of answers, and HPKE keys.

Clients get them through the server.

``head_0 = SHA-256(offbeat-chain-v1 ‖ terms digest)`` and ``head_n = SHA-256(offbeat-chain-v1 ‖ n ‖ head_{n−1} ‖ batch
digest ‖ SHA-256 of the answer)``, n as 8 bytes, big-endian. A batch's digest is ``SHA-256(offbeat-batch-v1 ‖ run ‖ n ‖
sorted records)``, so it does not depend on their order.
"""

import hashlib
import struct
from collections.abc import Iterable
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from offbeat_private.signed_terms import Terms

HEAD_SIGNATURE_BYTES = 64
"""Length of a head's signature."""

HEAD_HEADER = "Offbeat-Head"
"""The header of an answer with its head: ``number:hash``."""

SIGNATURE_HEADER = "Offbeat-Head-Signature"
"""The header with the head's signature, in hexadecimal digits."""

_BATCH = b"offbeat-batch-v1"
_CHAIN = b"offbeat-chain-v1"
_SIGNED_HEAD = b"offbeat-head-v1"
_SIGNED_KEY = b"offbeat-epoch-key-v1"
_KEY = struct.Struct(">I32s")
EPOCH_KEY_BYTES = _KEY.size + 64
"""Length of a signed key."""


class Head(NamedTuple):
    """The head of a chain after batch ``number``, 0 before the first."""

    number: int
    digest: bytes  # 32

    def signed_message(self, terms_digest: bytes) -> bytes:
        """Return what the helper signs: ``offbeat-head-v1 ‖ terms digest ‖ n ‖ head``."""
        return _SIGNED_HEAD + terms_digest + _number(self.number) + self.digest

    def check_signature(self, signature: bytes, helper_key: bytes, terms_digest: bytes) -> None:
        """Raise ``ValueError`` unless the helper of the terms signed this head."""
        _verify(helper_key, signature, self.signed_message(terms_digest), "head")


def batch_digest(run: bytes, number: int, records: Iterable[bytes]) -> bytes:
    """Return the digest of a batch; all records have the same size."""
    return hashlib.sha256(b"".join((_BATCH, run, _number(number), *sorted(records)))).digest()


def first_head(terms_digest: bytes) -> Head:
    """Return the head before the first batch of a run."""
    return Head(0, hashlib.sha256(_CHAIN + terms_digest).digest())


def next_head(head: Head, batch: bytes, answer: bytes) -> Head:
    """Return the head after the next batch; ``answer`` is the SHA-256 of its answer."""
    number = head.number + 1
    return Head(number, hashlib.sha256(b"".join((_CHAIN, _number(number), head.digest, batch, answer))).digest())


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
    return packed + signing_key.sign(_SIGNED_KEY + terms.digest + packed)


def verify_epoch_key(signed: bytes, terms: Terms) -> EpochKey:
    """Return the key of untrusted bytes that the helper of the terms signed.

    Without this check the server could hand out a key of its own and open every mask.

    Raises:
        ValueError: The bytes are malformed, or the signature is not the helper's for these terms.
    """
    if len(signed) != EPOCH_KEY_BYTES:
        raise ValueError(f"a signed key has {EPOCH_KEY_BYTES} bytes, got {len(signed)}")
    packed, signature = signed[: _KEY.size], signed[_KEY.size :]
    _verify(terms.helper_key, signature, _SIGNED_KEY + terms.digest + packed, "epoch key")
    return EpochKey(*_KEY.unpack(packed))


def _verify(helper_key: bytes, signature: bytes, message: bytes, name: str) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(helper_key).verify(signature, message)
    except InvalidSignature:
        raise ValueError(f"the {name} was not signed by the helper of the terms") from None


def _number(number: int) -> bytes:
    return number.to_bytes(8, "big")
