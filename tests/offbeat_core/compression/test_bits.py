import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.compression.bits import pack_flags, pack_numbers, packed_bytes, unpack_flags, unpack_numbers


@given(data=st.data(), width=st.integers(1, 32))
def test_numbers_stand_one_after_the_other_from_the_lowest_bit_up(data, width):
    numbers = data.draw(st.lists(st.integers(0, 2**width - 1), max_size=30))
    packed = pack_numbers(np.array(numbers, np.uint32), width)
    whole = sum(number << position * width for position, number in enumerate(numbers))
    assert packed == whole.to_bytes(packed_bytes(width * len(numbers)), "little")
    assert unpack_numbers(packed, width, len(numbers)).tolist() == numbers


@pytest.mark.parametrize("width", [3, 7, 16])
def test_many_numbers_are_packed_as_few_are(width):
    numbers = np.random.default_rng(0).integers(0, 2**width, 50_001)
    packed = pack_numbers(numbers, width)
    bits = "".join(f"{number:0{width}b}"[::-1] for number in numbers.tolist())
    assert packed == int(bits[::-1], 2).to_bytes(packed_bytes(width * 50_001), "little")
    assert (unpack_numbers(packed, width, 50_001) == numbers).all()


def test_each_byte_is_copied_once():
    copied = []

    class Recorded(bytes):
        def __getitem__(self, key):
            part = super().__getitem__(key)
            copied.append(len(part) if isinstance(key, slice) else 0)
            return part

    numbers = np.arange(100_003, dtype=np.uint32)
    packed = Recorded(pack_numbers(numbers, 17))
    assert (unpack_numbers(packed, 17, len(numbers)) == numbers).all()
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
