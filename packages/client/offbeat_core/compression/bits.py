"""Whole numbers in few bits each, from the lowest bit of the first byte up."""

import numpy as np
from numpy.typing import NDArray

# Numbers per block, so that their bits, a byte each, stay in the cache; whole bytes at any width.
_BLOCK = 2**14


def packed_bytes(bits: int) -> int:
    """Return how many bytes hold so many bits."""
    return -(-bits // 8)


def pack_flags(flags: NDArray[np.bool_]) -> bytes:
    """Return a bit for each flag, ``(n,)``; the last byte is filled up with zeros."""
    return np.packbits(flags, bitorder="little").tobytes()


def unpack_flags(data: bytes, count: int) -> NDArray[np.bool_]:
    """Return the ``(count,)`` flags; ``ValueError`` if bits after the last are not 0."""
    if data and data[-1] >> (count - 1) % 8 + 1:
        raise ValueError(f"the bits after the first {count} must be 0")
    return np.unpackbits(np.frombuffer(data, np.uint8), count=count, bitorder="little").view(np.bool_)


def pack_numbers(numbers: NDArray[np.integer], width: int) -> bytes:
    """Return ``width`` bits, 1 … 32, for each number ``(n,)``, 0 … 2^width − 1."""
    packed: list[bytes] = []
    for start in range(0, len(numbers), _BLOCK):
        words = numbers[start : start + _BLOCK].astype("<u4").view(np.uint8).reshape(-1, 4)
        bits = np.unpackbits(words, axis=1, count=width, bitorder="little")
        packed.append(np.packbits(bits, bitorder="little").tobytes())
    return b"".join(packed)


def unpack_numbers(data: bytes, width: int, count: int) -> NDArray[np.uint32]:
    """Return the ``(count,)`` numbers; ``ValueError`` as for ``unpack_flags``."""
    numbers = np.zeros((count, 4), np.uint8)
    for start in range(0, count, _BLOCK):
        block = numbers[start : start + _BLOCK]
        first, size = start * width // 8, packed_bytes(len(block) * width)
        bits = unpack_flags(data[first : first + size], len(block) * width)
        block[:, : packed_bytes(width)] = np.packbits(bits.reshape(-1, width), axis=1, bitorder="little")
    return numbers.view("<u4").reshape(count).astype(np.uint32, copy=False)
