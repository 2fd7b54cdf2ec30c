"""The protocol of ``docs/privacy/protocol.md`` a second time, number by number, for the test vectors.

It shares no code with ``offbeat_client``, and uses ``cryptography`` only for AES blocks, AES-GCM and X25519.
"""

import hashlib
import hmac
import math
from fractions import Fraction

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM


def words(key: bytes, number: int, length: int) -> list[int]:
    """Return a stream's words."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    result = []
    for block in range(-(-length // 4)):
        data = encryptor.update(number.to_bytes(8, "big") + block.to_bytes(8, "big"))
        result += [int.from_bytes(data[i : i + 4], "little") for i in range(0, 16, 4)]
    return result[:length]


def quantised(delta: list[float], divisor: float, clip_norm: float, scale: float, bits: int, key: bytes) -> list[int]:
    """Return the quantised vector of a delta."""
    norm = math.sqrt(math.fsum((x / divisor) ** 2 for x in delta))
    largest = 2 ** (bits - 1) - 1
    result = []
    for number, word in zip(delta, words(key, 0, len(delta)), strict=True):
        x = number / divisor * min(1.0, clip_norm / norm) * scale * largest / clip_norm
        q = math.floor(x)
        q += Fraction(word, 2**32) < Fraction(x) - q
        result.append(max(-largest, min(largest, q)))
    return result


def masked(quantised: list[int], previous: list[int], seed: bytes) -> list[int]:
    """Return the words of a difference behind a mask."""
    pairs = zip(quantised, previous, words(seed, 0, len(quantised)), strict=True)
    return [(number - before + word) % 2**32 for number, before, word in pairs]


def hpke_open(ciphertext: bytes, private_key: bytes, info: bytes) -> bytes:
    """Open HPKE's base mode with X25519, HKDF-SHA256 and AES-256-GCM (RFC 9180, sections 4 to 6)."""
    kem, suite = b"KEM\x00\x20", b"HPKE\x00\x20\x00\x01\x00\x02"
    encapsulated, sealed = ciphertext[:32], ciphertext[32:]
    private = X25519PrivateKey.from_private_bytes(private_key)
    secret = private.exchange(X25519PublicKey.from_public_bytes(encapsulated))
    context = encapsulated + private.public_key().public_bytes_raw()
    shared = _expand(kem, _extract(kem, b"", b"eae_prk", secret), b"shared_secret", context, 32)
    hashes = _extract(suite, b"", b"psk_id_hash", b"") + _extract(suite, b"", b"info_hash", info)
    schedule = _extract(suite, shared, b"secret", b"")
    key = _expand(suite, schedule, b"key", b"\x00" + hashes, 32)
    nonce = _expand(suite, schedule, b"base_nonce", b"\x00" + hashes, 12)
    return AESGCM(key).decrypt(nonce, sealed, b"")


def _extract(suite: bytes, salt: bytes, label: bytes, content: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + content, hashlib.sha256)


def _expand(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
    content = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    return hmac.digest(key, content + b"\x01", hashlib.sha256)[:length]  # one block is enough here
