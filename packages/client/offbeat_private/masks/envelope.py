"""Share records: a mask's seed, sealed for the helper and signed by the client."""

import struct
from typing import NamedTuple, Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from offbeat_private.masks.helper_facts import HEAD_SIGNATURE_BYTES, Head

SEED_BYTES = 32
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
_CIPHERTEXT_BYTES = 80  # the encapsulated key (32), the sealed seed (32) and its tag (16)
_SIGNATURE_BYTES = 64
_SIGNED = b"offbeat-share-v1"  # before all that is signed, so that no other signature of the key means a share
_INFO = struct.Struct(">32s16s32sQQQ32s32sQ32sI")
_PARTS = struct.Struct(f"{_INFO.size}s{HEAD_SIGNATURE_BYTES}s{_CIPHERTEXT_BYTES}s{_SIGNATURE_BYTES}s")
_LENGTHS = {"terms": 32, "run": 16, "client": 32, "model": 32, "vector": 32, "head": 32}
_LIMITS = {"visit": 1 << 63, "start_version": 1 << 63, "version": 1 << 63, "head_number": 1 << 63, "epoch": 1 << 32}

RECORD_BYTES = _PARTS.size
"""Length of a share record."""


class Binding(NamedTuple):
    """The run, visit and sum that a share is for; its bytes are the ``info`` of HPKE.

    Attributes:
        terms: SHA-256 of the terms, 32 bytes.
        run: The run's id, 16 bytes.
        client: The client's Ed25519 public key, 32 bytes.
        visit: The visit's number. Numbers are below 2⁶³, the epoch below 2³².
        start_version: The version that the visit started from.
        version: t, the version for which the update was scaled.
        model: SHA-256 of the model that the visit started from, 32 bytes.
        vector: The commitment to the masked vector, 32 bytes.
        head_number: The number of the newest head of the helper's chain that the client knows.
        head: The hash of that head, 32 bytes.
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
    head_signature: bytes
    ciphertext: bytes
    signature: bytes

    def check_signature(self) -> None:
        """Raise ``ValueError`` unless the binding's client signed this record."""
        try:
            key = Ed25519PublicKey.from_public_bytes(self.binding.client)
            key.verify(self.signature, _SIGNED + self.info + self.head_signature + self.ciphertext)
        except InvalidSignature:
            raise ValueError("the share was not signed by its client") from None

    def check_head(self, helper_key: bytes) -> None:
        """Raise ``ValueError`` unless the helper, an Ed25519 key, signed the quoted head."""
        head = Head(self.binding.head_number, self.binding.head)
        head.check_signature(self.head_signature, helper_key, self.binding.terms)

    def open(self, hpke_private_key: X25519PrivateKey) -> bytes:
        """Return the seed, 32 bytes.

        Raises:
            ValueError: Key, ciphertext or info is not that of the sealing.
        """
        try:
            return _SUITE.decrypt(self.ciphertext, hpke_private_key, self.info)
        except InvalidTag:
            raise ValueError(
                "the seed cannot be opened: it was sealed for another key, or the record was changed"
            ) from None


def seal(
    seed: bytes, hpke_public_key: bytes, binding: Binding, head_signature: bytes, signing_key: Ed25519PrivateKey
) -> bytes:
    """Return the share record, 420 bytes.

    It is info (212), the head's signature (64), the HPKE ciphertext (80), and the client's signature (64). HPKE (RFC
    9180) is its base mode with X25519, HKDF-SHA256 and AES-256-GCM, with an empty ``aad``. The client's Ed25519
    signature is over ``offbeat-share-v1`` and all that precedes it.

    Args:
        seed: The mask's 32 bytes.
        hpke_public_key: The helper's X25519 key of the binding's epoch, 32 bytes.
        binding: Where the share counts.
        head_signature: The helper's signature of the binding's head, 64 bytes; see ``Head``.
        signing_key: The key of ``binding.client``.

    Raises:
        ValueError: A value is out of range, or the signing key is not the binding's.
    """
    if len(seed) != SEED_BYTES:
        raise ValueError(f"a seed has {SEED_BYTES} bytes, got {len(seed)}")
    if len(head_signature) != HEAD_SIGNATURE_BYTES:
        raise ValueError(f"a head's signature has {HEAD_SIGNATURE_BYTES} bytes, got {len(head_signature)}")
    if signing_key.public_key().public_bytes_raw() != binding.client:
        raise ValueError("the signing key does not belong to the binding's client")
    info = binding.to_bytes()
    ciphertext = _SUITE.encrypt(seed, X25519PublicKey.from_public_bytes(hpke_public_key), info)
    content = info + head_signature + ciphertext
    return content + signing_key.sign(_SIGNED + content)


def parse(record: bytes) -> Envelope:
    """Return the envelope of an untrusted share record.

    Raises:
        ValueError: The record is malformed.
    """
    if len(record) != RECORD_BYTES:
        raise ValueError(f"a share record has {RECORD_BYTES} bytes, got {len(record)}")
    info, head_signature, ciphertext, signature = _PARTS.unpack(record)
    return Envelope(Binding(*_INFO.unpack(info)).check(), info, head_signature, ciphertext, signature)
