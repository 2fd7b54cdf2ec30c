"""Pseudorandom words: AES-256 in counter mode under a secret key."""

from collections.abc import Iterator

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

KEY_BYTES = 32
"""Length of a key; it comes from the operating system (``os.urandom``) and is used for one purpose only."""

_CHUNK = 1 << 15  # words at a time: the callers' float64 copies stay in a core's cache
_ZEROS = bytes(4 * _CHUNK)


def keystream(key: bytes, number: int, length: int) -> NDArray[np.uint32]:
    """Return the first words of a key's stream with this number.

    They are AES-256's encryption of the counter blocks ``number ‖ 0``, ``number ‖ 1``, … (two big-endian words of 64
    bits), read as little-endian words of 32 bits. Streams with different numbers do not overlap.

    Args:
        key: 32 secret bytes.
        number: 0 ≤ number < 2⁶⁴.
        length: How many words.

    Returns:
        Array ``(length,)`` of uint32.

    Raises:
        ValueError: The key or the number is out of range.
    """
    words = np.empty(length, np.uint32)
    for part, chunk in keystream_chunks(key, number, length):
        words[part] = chunk
    return words


def keystream_chunks(key: bytes, number: int, length: int) -> Iterator[tuple[slice, NDArray[np.uint32]]]:
    """Yield ``keystream(key, number, length)`` in pieces, each with its place.

    The pieces share their memory: use one before the next.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"a key has {KEY_BYTES} bytes, got {len(key)}")
    if not 0 <= number < 1 << 64:
        raise ValueError(f"a stream's number must be in 0 … 2⁶⁴ − 1, got {number}")
    encryptor = Cipher(algorithms.AES(key), modes.CTR(number.to_bytes(8, "big") + bytes(8))).encryptor()
    words = np.empty(min(length, _CHUNK), "<u4")
    for begin in range(0, length, _CHUNK):
        piece = words[: length - begin]
        encryptor.update_into(memoryview(_ZEROS)[: piece.nbytes], piece.view(np.uint8).data)
        yield slice(begin, begin + len(piece)), piece.astype(np.uint32, copy=False)
