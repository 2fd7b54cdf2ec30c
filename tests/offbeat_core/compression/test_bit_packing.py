import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.compression.bit_packing import (
    index_bytes,
    pack_flags,
    pack_indices,
    pack_numbers,
    packed_bytes,
    unpack_flags,
    unpack_indices,
    unpack_numbers,
)


@pytest.mark.parametrize(
    ("indices", "length", "expected"),
    [
        ([0], 1, "01"),
        ([0, 3], 4, "09"),
        ([1, 8], 9, "02 01"),
        # l = 5: low bits 5 and 8, high parts 0 and 1, so one, zero, one.
        ([5, 40], 64, "05 01 05"),
        ([63], 64, "3f 01"),
        # l = 4 and 3 ones among at most 6 places: low bits 15, 0, 1, high parts 0, 1, 3.
        ([15, 16, 49], 50, "0f 01 25"),
    ],
)
def test_bytes_by_hand(indices, length, expected):
    packed = pack_indices(np.array(indices), length)
    assert packed == bytes.fromhex(expected)
    assert unpack_indices(packed, len(indices), length).tolist() == indices


@given(data=st.data(), length=st.one_of(st.integers(1, 80), st.integers(1, 3000)))
def test_indices_come_back_and_their_size_was_known(data, length):
    indices = sorted(data.draw(st.sets(st.integers(0, length - 1), min_size=1, max_size=100)))
    packed = pack_indices(np.array(indices), length)
    assert len(packed) == index_bytes(len(indices), length)
    assert unpack_indices(packed, len(indices), length).tolist() == indices


@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 1000, 4097])
def test_the_extreme_choices_come_back(length):
    for count in {1, 2, 3, length // 5, length // 4, length // 3, length // 2, length - 1, length} - {0, -1}:
        if count <= length:
            for first in (0, length - count):
                indices = np.arange(first, first + count)
                packed = pack_indices(indices, length)
                assert len(packed) == index_bytes(count, length)
                assert unpack_indices(packed, count, length).tolist() == indices.tolist()


@given(length=st.integers(1, 2**31 - 1), share=st.floats(1e-9, 1))
def test_sizes_are_near_the_least_possible(length, share):
    count = max(1, math.floor(share * length))
    size = index_bytes(count, length)
    choices = math.lgamma(length + 1) - math.lgamma(count + 1) - math.lgamma(length - count + 1)
    rounding = 1e-14 * math.lgamma(length + 1)
    assert 8 * size >= (choices - rounding) / math.log(2)
    assert 8 * size <= count * (2 + math.log2(length / count)) + 16
    assert size <= (length + 7) // 8
    assert size <= 4 * count + 1


@given(data=st.data(), width=st.integers(1, 32))
def test_numbers_stand_one_after_the_other_from_the_lowest_bit_up(data, width):
    numbers = data.draw(st.lists(st.integers(0, 2**width - 1), max_size=30))
    packed = pack_numbers(np.array(numbers, np.uint32), width)
    whole = sum(number << position * width for position, number in enumerate(numbers))
    assert packed == whole.to_bytes(packed_bytes(width * len(numbers)), "little")
    assert unpack_numbers(packed, width, len(numbers)).tolist() == numbers


@pytest.mark.parametrize("width", [3, 16, 17])
def test_many_numbers_are_packed_as_few_are_and_each_byte_is_copied_once(width):
    copied = []

    class Recorded(bytes):
        def __getitem__(self, key):
            part = super().__getitem__(key)
            copied.append(len(part) if isinstance(key, slice) else 0)
            return part

    numbers = np.random.default_rng(0).integers(0, 2**width, 50_001)
    packed = Recorded(pack_numbers(numbers, width))
    bits = "".join(f"{number:0{width}b}"[::-1] for number in numbers.tolist())
    assert packed == int(bits[::-1], 2).to_bytes(packed_bytes(width * 50_001), "little")
    assert (unpack_numbers(packed, width, 50_001) == numbers).all()
    assert sum(copied) == len(packed)


@given(st.lists(st.booleans(), max_size=40))
def test_a_flag_is_a_bit_from_the_lowest_up(flags):
    packed = pack_flags(np.array(flags, np.bool_))
    assert packed == sum(flag << place for place, flag in enumerate(flags)).to_bytes(packed_bytes(len(flags)), "little")
    assert unpack_flags(packed, len(flags)).tolist() == flags


@pytest.mark.parametrize(("data", "count"), [(b"\x04", 2), (b"\x00\x02", 9)])
def test_bits_after_the_last_flag_are_refused(data, count):
    with pytest.raises(ValueError, match=f"the bits after the first {count} must be 0"):
        unpack_flags(data, count)
