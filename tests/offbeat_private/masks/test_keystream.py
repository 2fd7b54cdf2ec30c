import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from offbeat_private.masks.keystream import keystream, keystream_chunks

# AES-256 under the zero key of the blocks 0 and 1, as published in NIST's AESAVS and in GCM's test case 13.
PUBLISHED = bytes.fromhex("dc95c078a2408989ad48a21492842087 530f8afbc74536b9a963b4f1c4cb738b")


def by_blocks(key, number, blocks):
    """Return the stream block by block, without counter mode."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return b"".join(encryptor.update((number << 64 | block).to_bytes(16, "big")) for block in range(blocks))


def test_the_words_are_those_of_the_published_blocks():
    words = keystream(bytes(32), 0, 8)
    assert words.dtype == np.uint32
    assert words[0] == 0x78C095DC  # little-endian
    assert words.tobytes() == PUBLISHED


@pytest.mark.parametrize("number", [0, 1, 2**64 - 1])
@pytest.mark.parametrize("length", [0, 3, 4, 40_001])  # the last one in several pieces
def test_a_number_picks_the_upper_half_of_the_counter(number, length):
    key = bytes(range(32))
    blocks = -(-length // 4)
    assert keystream(key, number, length).tobytes() == by_blocks(key, number, blocks)[: 4 * length]


def test_pieces_are_in_order_and_whole():
    pieces = [(part, chunk.copy()) for part, chunk in keystream_chunks(b"k" * 32, 7, 40_000)]
    assert [part.start for part, _ in pieces] == [0, *(part.stop for part, _ in pieces[:-1])]
    assert pieces[-1][0].stop == 40_000
    assert np.array_equal(np.concatenate([chunk for _, chunk in pieces]), keystream(b"k" * 32, 7, 40_000))


def test_keys_and_numbers_have_different_streams():
    streams = [keystream(key, number, 4).tobytes() for key in (b"a" * 32, b"b" * 32) for number in (0, 1)]
    assert len(set(streams)) == 4


@pytest.mark.parametrize(("key", "number"), [(bytes(31), 0), (bytes(16), 0), (bytes(32), -1), (bytes(32), 1 << 64)])
def test_values_out_of_range_are_refused(key, number):
    with pytest.raises(ValueError, match=r"^(a key has 32 bytes|a stream's number must be in)"):
        keystream(key, number, 4)
