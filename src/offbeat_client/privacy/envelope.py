"""Share records: a mask's seed, sealed for the helper and signed by the client."""

import struct
from typing import NamedTuple, Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

SEED_BYTES = 32
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_CIPHERTEXT_BYTES = 80  # the encapsulated key (32), the sealed seed (32) and its tag (16)
_SIGNATURE_BYTES = 64
_SIGNED = b"offbeat-share-v1"  # before all that is signed, so that no other signature of the key means a share
_INFO = struct.Struct(">32s16s32sQQQ32s32sQ32sI")
_LENGTHS = {"terms": 32, "run": 16, "client": 32, "model": 32, "vector": 32, "head": 32}
_LIMITS = {"visit": 1 << 63, "start_version": 1 << 63, "version": 1 << 63, "head_number": 1 << 63, "epoch": 1 << 32}

RECORD_BYTES = _INFO.size + _CIPHERTEXT_BYTES + _SIGNATURE_BYTES
"""Length of a share record."""


class Binding(NamedTuple):
    """The one place where a share counts; its bytes are the ``info`` of HPKE.

    Attributes:
        terms: SHA-256 of the terms, 32 bytes.
        run: The run's id, 16 bytes.
        client: The client's Ed25519 public key, 32 bytes.
        visit: The visit's number. Numbers are below 2⁶³, the epoch below 2³².
        start_version: The version that the visit started from.
        version: t, the version for which the update was scaled.
        model: SHA-256 of the model that the visit started from, 32 bytes.
        vector: SHA-256 of the masked vector, 32 bytes.
        head_number: The number of the last answer in the helper's chain that came with the model.
        head: The hash of that answer, 32 bytes.
        epoch: The number of the helper's HPKE key.
    """

    terms: bytes
    run: bytes
    client: bytes
    visit: int
    start_version: int
    version: int
    model: bytes
    vector: bytes
    head_number: int
    head: bytes
    epoch: int

    def check(self) -> Self:
        """Return the binding; raise ``ValueError`` if a value is out of range."""
        for name, length in _LENGTHS.items():
            if len(getattr(self, name)) != length:
                raise ValueError(f"{name} of a share must have {length} bytes, got {len(getattr(self, name))}")
        for name, limit in _LIMITS.items():
            if not 0 <= getattr(self, name) < limit:
                raise ValueError(f"{name} of a share must be in 0 … {limit - 1}, got {getattr(self, name)}")
        return self

    def to_bytes(self) -> bytes:
        """Return the 212 bytes of ``info``: all values in order, numbers big-endian."""
        return _INFO.pack(*self.check())


class Envelope(NamedTuple):
    """A share record's content; neither signature nor seal are checked yet."""

    binding: Binding
    info: bytes
    ciphertext: bytes
    signature: bytes

    def check_signature(self) -> None:
        """Raise ``ValueError`` unless the binding's client signed this record."""
        try:
            key = Ed25519PublicKey.from_public_bytes(self.binding.client)
            key.verify(self.signature, _SIGNED + self.info + self.ciphertext)
        except InvalidSignature:
            raise ValueError("the share's signature is not its client's") from None

    def open(self, hpke_private_key: X25519PrivateKey) -> bytes:
        """Return the seed, 32 bytes.

        Raises:
            ValueError: Key, ciphertext or info is not that of the sealing.
        """
        try:
            return _SUITE.decrypt(self.ciphertext, hpke_private_key, self.info)
        except InvalidTag:
            raise ValueError("the share was not sealed for this key and binding") from None


def seal(seed: bytes, hpke_public_key: bytes, binding: Binding, signing_key: Ed25519PrivateKey) -> bytes:
    """Return the share record, 356 bytes: info, HPKE ciphertext (80), signature (64).

    HPKE (RFC 9180) is its base mode with X25519, HKDF-SHA256 and AES-256-GCM, with an empty ``aad``. The Ed25519
    signature is over ``offbeat-share-v1 ‖ info ‖ ciphertext``.

    Args:
        seed: The mask's 32 bytes.
        hpke_public_key: The helper's X25519 key of the binding's epoch, 32 bytes.
        binding: Where the share counts.
        signing_key: The key of ``binding.client``.

    Raises:
        ValueError: A value is out of range, or the signing key is not the binding's.
    """
    if len(seed) != SEED_BYTES:
        raise ValueError(f"a seed has {SEED_BYTES} bytes, got {len(seed)}")
    if signing_key.public_key().public_bytes_raw() != binding.client:
        raise ValueError("the signing key is not the one of the binding's client")
    info = binding.to_bytes()
    ciphertext = _SUITE.encrypt(seed, X25519PublicKey.from_public_bytes(hpke_public_key), info)
    return info + ciphertext + signing_key.sign(_SIGNED + info + ciphertext)


def parse(record: bytes) -> Envelope:
    """Return the envelope of an untrusted share record.

    Raises:
        ValueError: The record is malformed.
    """
    if len(record) != RECORD_BYTES:
        raise ValueError(f"a share record has {RECORD_BYTES} bytes, got {len(record)}")
    info, rest = record[: _INFO.size], record[_INFO.size :]
    binding = Binding(*_INFO.unpack(info)).check()
    return Envelope(binding, info, rest[:_CIPHERTEXT_BYTES], rest[_CIPHERTEXT_BYTES:])
