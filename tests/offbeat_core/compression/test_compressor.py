import math
import re
import struct
import tracemalloc
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from offbeat_core.compression import (
    COMPRESSORS,
    Encoded,
    compress_with_memory,
    decode,
    qsgd,
    random_k,
    sign,
    top_k,
    uncompressed_bytes,
    wire_bytes,
)

ALL = [top_k(0.1), random_k(0.1), random_k(0.1, scaled=False), qsgd(5), sign()]


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def sent(name, length, parameters, payload=b""):
    """Return the bytes of a vector, written by hand."""
    return b"OBC\x01" + name.encode().ljust(8, b"\0") + struct.pack("<I", length) + parameters + payload


def payload_of(compressor, length, payload):
    return compressor.encode(np.zeros(length, np.float32), 0).to_bytes()[: -compressor.payload_bytes(length)] + payload


HALF, WHOLE = (struct.pack("<d", share) for share in (0.5, 1.0))
NINE = [1.0, -2.0, 0.0, -0.0, -1.0, 4.0, 0.0, 0.0, -10.0]


@pytest.mark.parametrize(
    ("compressor", "vector", "expected"),
    [
        (top_k(0.5), [3.0, -1.0, 0.5, -4.0], sent("top_k", 4, HALF, b"\x09" + floats(3.0, -4.0))),
        (random_k(1.0, scaled=False), [3.0, -1.0], sent("random_k", 2, WHOLE, b"\x00\x03" + floats(3.0, -1.0))),
        (random_k(1.0), [3.0], sent("random_k", 1, WHOLE, b"\x01\x01" + floats(3.0))),
        (qsgd(3), [0.0, -5.0, 0.0], sent("qsgd", 3, b"\x03", floats(5.0) + b"\xc3\0")),
        (sign(), NINE, sent("sign", 9, b"", floats(2.0) + b"\x12\x01")),
    ],
)
def test_bytes_by_hand(compressor, vector, expected):
    encoded = compressor.encode(np.array(vector, np.float32), seed=0)
    assert encoded.to_bytes() == expected
    assert Encoded.from_bytes(expected, len(vector)) == encoded


@given(data=st.data(), seed=st.integers(0, 2**64 - 1))
def test_bytes_round_trip_and_have_the_announced_size(compressors, vectors, data, seed):
    compressor, vector = data.draw(compressors), data.draw(vectors)
    encoded = compressor.encode(vector, seed)
    data = encoded.to_bytes()
    received = Encoded.from_bytes(data, len(vector))
    assert received == encoded
    assert received.to_bytes() == data
    assert len(data) == wire_bytes(compressor, len(vector))
    got = decode(received)
    assert (got.dtype, got.shape) == (np.float32, vector.shape)
    assert np.array_equal(got, decode(encoded))


@pytest.mark.parametrize(
    ("compressor", "length", "expected"),
    [
        (top_k(0.01), 1_000_000, 24 + 7500 + 3203 + 40_000),
        (top_k(1.0), 1000, 24 + 125 + 4000),
        (random_k(0.01), 1_000_000, 25 + 7500 + 3203 + 40_000),
        (qsgd(4), 1001, 17 + 4 + 501),
        (sign(), 1001, 16 + 4 + 126),
    ],
)
def test_sizes_by_hand(compressor, length, expected):
    assert wire_bytes(compressor, length) == expected


@pytest.mark.parametrize("length", [0, 2**31])
@pytest.mark.parametrize("ask", [uncompressed_bytes, partial(wire_bytes, sign()), partial(Encoded.from_bytes, b"")])
def test_lengths_out_of_range_are_refused(ask, length):
    with pytest.raises(ValueError, match=f"the vector's length must be in 1 … 2147483647, got {length}"):
        ask(length)


@pytest.mark.parametrize("compressor", ALL, ids=str)
@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (np.array([1.0, math.nan], np.float32), "NaN or infinity"),
        (np.array([1.0, math.inf], np.float32), "NaN or infinity"),
        (np.array([], np.float32), "length must be in 1"),
        (np.array(1.0, np.float32), r"shape \(d,\), got float32 of shape \(\)"),
        (np.ones(2), "got float64"),
    ],
)
def test_other_vectors_are_refused(compressor, vector, message):
    with pytest.raises(ValueError, match=message):
        compressor.encode(vector, seed=0)


def test_seeds_out_of_range_are_refused():
    for seed in (-1, 2**64):
        with pytest.raises(ValueError, match=f"seed must be in 0 … 2⁶⁴ − 1, got {seed}"):
            sign().encode(np.ones(2, np.float32), seed)


@pytest.mark.parametrize("compressor", ALL, ids=str)
def test_only_the_seed_decides_and_the_vector_is_left_alone(compressor):
    vector = np.random.default_rng(0).standard_normal(400, np.float32)[::2]
    before = vector.copy()
    numpy_state = np.random.get_state()[1].tolist()  # noqa: NPY002
    first, second, other = (compressor.encode(vector, seed) for seed in (3, 3, 3 + 2**40))
    assert first == second
    assert (first == other) == (compressor.name in ("top_k", "sign"))
    assert np.array_equal(vector, before)
    assert np.random.get_state()[1].tolist() == numpy_state  # noqa: NPY002


VALID = top_k(0.5).encode(np.array([3.0, -1.0, 0.5, -4.0], np.float32), seed=0).to_bytes()


@pytest.mark.parametrize(
    ("data", "length", "message"),
    [
        (VALID[:15], 4, "the data must have at least 16 bytes, got 15"),
        (VALID[:23], 4, "the header for top_k has 24 bytes, got 23"),
        (VALID[:-1], 4, "top_k sends 33 bytes for d = 4, got 32"),
        (b"X" + VALID[1:], 4, "the data must begin with b'OBC', got b'XBC'"),
        (VALID[:3] + b"\x02" + VALID[4:], 4, "the format's version must be 1, got 2"),
        (VALID[:4] + b"top_z" + VALID[9:], 4, "the compressor must be one of top_k, random_k, qsgd, sign, got 'top_z'"),
        (VALID[:4] + b"\n\xff" + VALID[6:], 4, r"sign, got '\n\\xffp_k'"),
        (VALID[:12] + b"\5\0\0\0" + VALID[16:], 4, "the vector's length must be 4, got 5"),
        (VALID[:16] + struct.pack("<d", math.nan) + VALID[24:], 4, "share must be in (0, 1], got nan"),
        (VALID[:16] + struct.pack("<d", 1) + VALID[24:], 4, "top_k sends 41 bytes for d = 4, got 33"),
        (VALID[:24] + b"\x01" + VALID[25:], 4, "there must be 2 indices, got 1"),
        (VALID[:24] + b"\x11" + VALID[25:], 4, "the bits after the first 4 must be 0"),
        (VALID[:-4] + floats(-math.inf), 4, "the values must be finite"),
        # k = 2, l = 5: two low parts, 10 bits, then the high parts, 3 bits.
        (payload_of(top_k(1 / 32), 64, b"\x05\x05\x05" + bytes(8)), 64, "the bits after the first 10 must be 0"),
        (payload_of(top_k(1 / 32), 64, b"\x05\x01\x0d" + bytes(8)), 64, "the bits after the first 3 must be 0"),
        (payload_of(top_k(1 / 32), 64, b"\x05\x01\x07" + bytes(8)), 64, "there must be 2 indices, got 3"),
        (payload_of(top_k(1 / 32), 64, b"\xa5\x00\x03" + bytes(8)), 64, "the indices must increase"),
        (payload_of(top_k(1 / 32), 64, b"\xa6\x00\x03" + bytes(8)), 64, "the indices must increase"),
        (payload_of(top_k(1 / 64), 63, b"\x1f\x02" + bytes(4)), 63, "the indices must be below 63, got 63"),
        (payload_of(qsgd(3), 3, floats(5.0) + b"\xfb\0"), 3, "the levels must be in -3 … 3, got 4"),
        (payload_of(qsgd(3), 3, floats(5.0) + b"\xc3\2"), 3, "the bits after the first 9 must be 0"),
        (payload_of(qsgd(3), 3, floats(-5.0) + b"\xc3\0"), 3, "the norm must be finite and not negative, got -5"),
        (payload_of(qsgd(3), 3, floats(math.inf) + b"\xc3\0"), 3, "the norm must be finite and not negative, got inf"),
        (payload_of(sign(), 3, floats(-1.0) + b"\x07"), 3, "the scale must be finite and not negative, got -1"),
        (payload_of(qsgd(3), 3, b"")[:16] + b"\x11" + bytes(40), 3, "bits must be a whole"),
        (payload_of(random_k(0.5), 2, b"")[:-1] + b"\x02" + b"\x01" + bytes(4), 2, "the header for random_k is not"),
    ],
)
def test_malformed_bytes_are_refused(data, length, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Encoded.from_bytes(data, length)


def read_or_refuse(data, length):
    try:
        encoded = Encoded.from_bytes(data, length)
    except ValueError as error:
        message = str(error)
    else:
        message = ""
        assert encoded.to_bytes() == data
        got = decode(encoded)
        assert got.shape == (length,)
        assert np.isfinite(got).all()
    assert "\n" not in message


@given(data=st.data(), length=st.integers(1, 60))
def test_random_parameters_and_payloads_are_read_or_refused(compressors, data, length):
    name = data.draw(st.sampled_from([*COMPRESSORS, "other"]))
    share = st.floats(0, 1).map(lambda share: struct.pack("<d", share))
    parameters = data.draw(st.one_of(st.binary(max_size=9), share))
    read_or_refuse(sent(name, length, parameters, data.draw(st.binary(max_size=60))), length)
    compressor = data.draw(compressors)
    size = compressor.payload_bytes(length)
    read_or_refuse(payload_of(compressor, length, data.draw(st.binary(min_size=size, max_size=size))), length)


@given(data=st.data(), seed=st.integers(0, 99))
def test_damaged_bytes_are_read_or_refused(compressors, vectors, data, seed):
    vector = data.draw(vectors)
    good = data.draw(compressors).encode(vector, seed).to_bytes()
    place = data.draw(st.integers(0, len(good) - 1))
    flipped, more = bytes([good[place] ^ data.draw(st.integers(1, 255))]), data.draw(st.binary(max_size=9))
    for middle, rest in ((flipped, place + 1), (more, place), (b"", place + 1), (b"", len(good))):
        read_or_refuse(good[:place] + middle + good[rest:], len(vector))
    other = data.draw(st.integers(1, 70))
    assume(other != len(vector))
    with pytest.raises(ValueError, match="the vector's length must be"):
        Encoded.from_bytes(good, other)


def peak_of(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compressor", [top_k(0.001), top_k(0.2), top_k(1), random_k(0.2), qsgd(16), sign()], ids=str)
def test_reading_takes_a_few_times_the_vector_in_memory(compressor):
    length = 200_000
    data = compressor.encode(np.ones(length, np.float32), seed=0).to_bytes()
    assert peak_of(lambda: Encoded.from_bytes(data, length)) < 8 * uncompressed_bytes(length)


def test_a_claimed_size_takes_no_memory():
    claim = sent("top_k", 2**31 - 1, WHOLE, bytes(100))
    large = VALID + bytes(10_000_000)
    for data, length in ((claim, 2**31 - 1), (claim, 4), (large, 4)):

        def read(data=data, length=length):
            with pytest.raises(ValueError, match=r"the vector's length must be|top_k sends"):
                Encoded.from_bytes(data, length)

        assert peak_of(read) < 100_000


CONTRACTIONS = [top_k(0.1), top_k(0.001), top_k(1), random_k(0.3, scaled=False), qsgd(4), qsgd(12), sign()]


def deltas(count, length=49):
    return list(np.random.default_rng(5).standard_normal((count, length), np.float32))


@pytest.mark.parametrize("compressor", CONTRACTIONS, ids=str)
def test_sent_updates_and_memory_add_up(compressor):
    memory, arrived, total = None, np.zeros(49), np.zeros(49)
    for seed, delta in enumerate(deltas(40)):
        vector, memory, _ = compress_with_memory(compressor, memory, delta, seed)
        arrived += vector
        total += delta
    assert np.allclose(arrived + memory, total, rtol=0, atol=1e-4)
    assert (np.linalg.norm(memory) == 0) == (compressor == top_k(1))


def test_by_hand():
    got, memory, _ = compress_with_memory(top_k(0.3), None, np.array([3.0, -2.0, 1.0], np.float32), seed=0)
    assert (got.tolist(), memory.tolist()) == ([3.0, 0.0, 0.0], [0.0, -2.0, 1.0])
    got, memory, _ = compress_with_memory(top_k(0.3), memory, np.array([1.0, -1.0, 1.0], np.float32), seed=0)
    assert (got.tolist(), memory.tolist()) == ([0.0, -3.0, 0.0], [1.0, 0.0, 2.0])


@pytest.mark.parametrize("compressor", CONTRACTIONS, ids=str)
def test_the_memory_of_a_contraction_stays_bounded(compressor):
    share = {"top_k": compressor.parameters.get("share"), "random_k": 0.3, "qsgd": 0.75, "sign": 1 / 49}[
        compressor.name
    ]
    memory, largest = None, 0.0
    for seed, delta in enumerate(deltas(100)):
        largest = max(largest, np.linalg.norm(delta))
        _, memory, _ = compress_with_memory(compressor, memory, delta, seed)
    # ‖m‖² ≤ 4(1 − δ)/δ² max ‖Δ‖² (Karimireddy et al. 2019, Lemma 3).
    assert np.linalg.norm(memory) <= 2 * math.sqrt(1 - share) / share * largest


@pytest.mark.parametrize("compressor", CONTRACTIONS, ids=str)
def test_no_memory_is_a_memory_of_zeros_and_nothing_is_changed(compressor):
    (delta,) = deltas(1)
    before = delta.copy()
    vector, memory, encoded = compress_with_memory(compressor, None, delta, seed=7)
    _, same_memory, same = compress_with_memory(compressor, np.zeros(49, np.float32), delta, seed=7)
    assert encoded == same == compressor.encode(delta, seed=7)
    assert np.array_equal(memory, same_memory)
    assert np.array_equal(vector, decode(encoded))
    assert np.array_equal(delta, before)
    assert not np.shares_memory(memory, delta)


ONES = np.ones(49, np.float32)
NOT_A_CONTRACTION = "error feedback needs a contraction, which {} is not for d = 49"


@pytest.mark.parametrize(
    ("compressor", "memory", "delta", "message"),
    [
        (random_k(1.0), None, ONES, NOT_A_CONTRACTION.format("random_k(share=1.0, scaled=True)")),
        (qsgd(3), None, ONES, NOT_A_CONTRACTION.format("qsgd(bits=3)")),
        (sign(), np.zeros(1, np.float32), ONES, "the memory must have the update's shape (49,), got (1,)"),
        (sign(), 3e38 * ONES, 3e38 * ONES, "the vector contains NaN or infinity"),
        (sign(), 0 * ONES, np.nan * ONES, "the vector contains NaN or infinity"),
        (sign(), np.inf * ONES, ONES, "the vector contains NaN or infinity"),
    ],
)
def test_what_a_memory_cannot_make_up_for_is_refused(compressor, memory, delta, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        compress_with_memory(compressor, memory, delta, seed=0)
