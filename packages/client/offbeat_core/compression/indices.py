"""The indices of k among d entries, as bytes; their number depends on k and d.

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
from offbeat_core.compression.bits import pack_flags, pack_numbers, packed_bytes, unpack_flags, unpack_numbers


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
