"""Whole numbers in few bits each, and indices of k among d entries.

Numbers are packed from the lowest bit of the first byte up. The number of bytes of indices depends on k and d alone.
There are two forms. The shorter one is used, or the first if both have the same length:

* a bitmap, d bits;
* for each index its l = ⌊log₂(d/k)⌋ low bits as they are, then the remaining high parts, which never fall, as a row of
  bits: a one for each index, and before it a zero for each step by which its high part is above the one before. These
  are k ones and at most ⌊(d − 1)/2^l⌋ zeros, at worst less than 3k bits: together about 2 + log₂(d/k) bits an index,
  which is within a bit of the least that any form needs on average. (Elias, "Efficient storage and retrieval by content
  and address of static files", J. ACM 1974; Fano 1971. The gaps between indices in whole bytes would take 8 bits each
  or more, and a number of bytes that depends on the gaps.)

32 bits an index would be shorter by one byte at most, and only beyond d = 2³⁰.
"""

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


def index_bytes(count: int, length: int) -> int:
    """Return how many bytes ``count`` = k places among ``length`` = d take, 1 ≤ k ≤ d."""
    return min(packed_bytes(length), _split_bytes(count, length))


def pack_indices(indices: NDArray[np.int64], length: int) -> bytes:
    """Return strictly increasing indices, ``(k,)`` with values in 0 … d − 1, as bytes."""
    if _as_bitmap(len(indices), length):
        return pack_flags(_flags_at(indices, length))
    low_bits, high_bits = _split(len(indices), length)
    positions = (indices >> low_bits) + np.arange(len(indices))
    return pack_numbers(indices & (1 << low_bits) - 1, low_bits) + pack_flags(_flags_at(positions, high_bits))


def unpack_indices(data: bytes, count: int, length: int) -> NDArray[np.int64]:
    """Return the indices ``(k,)``, checked to increase and to be below d."""
    if _as_bitmap(count, length):
        return _places(unpack_flags(data, length), count)
    low_bits, high_bits = _split(count, length)
    boundary = packed_bytes(low_bits * count)
    low = unpack_numbers(data[:boundary], low_bits, count)
    high = _places(unpack_flags(data[boundary:], high_bits), count) - np.arange(count)
    indices = (high << low_bits) + low
    if (np.diff(indices) <= 0).any():
        raise ValueError("the indices must increase")
    if indices[-1] >= length:
        raise ValueError(f"the indices must be below {length}, got {indices[-1]}")
    return indices


def _as_bitmap(count: int, length: int) -> bool:
    return packed_bytes(length) <= _split_bytes(count, length)


def _split(count: int, length: int) -> tuple[int, int]:
    """Return l, an index's low bits, and the bits of all high parts together."""
    low_bits = (length // count).bit_length() - 1
    return low_bits, count + (length - 1 >> low_bits)


def _split_bytes(count: int, length: int) -> int:
    low_bits, high_bits = _split(count, length)
    return packed_bytes(low_bits * count) + packed_bytes(high_bits)


def _flags_at(positions: NDArray[np.int64], length: int) -> NDArray[np.bool_]:
    flags = np.zeros(length, np.bool_)
    flags[positions] = True
    return flags


def _places(flags: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    places = np.flatnonzero(flags)
    if len(places) != count:
        raise ValueError(f"there must be {count} indices, got {len(places)}")
    return places
