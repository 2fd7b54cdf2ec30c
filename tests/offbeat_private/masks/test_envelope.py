import re

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from offbeat_private.masks.envelope import RECORD_BYTES, Binding, parse, seal

SEED = bytes(range(32))
SIGNED_HEAD = bytes(range(64))
INFO, HEAD, CIPHERTEXT = 212, 276, 356  # where info, the head's signature and the ciphertext end
NUMBERS = ("visit", "start_version", "version", "head_number", "epoch")


@pytest.fixture(scope="module")
def binding(client_key):
    return Binding(
        terms=b"t" * 32,
        run=b"r" * 16,
        client=client_key.public_key().public_bytes_raw(),
        visit=1,
        start_version=2,
        version=3,
        model=b"m" * 32,
        vector=b"v" * 32,
        head_number=4,
        head=b"h" * 32,
        epoch=5,
    )


@pytest.fixture(scope="module")
def record(binding, client_key, hpke_key):
    return seal(SEED, hpke_key.public_key().public_bytes_raw(), binding, SIGNED_HEAD, client_key)


def flipped(record, bit):
    return record[: bit // 8] + bytes([record[bit // 8] ^ 1 << bit % 8]) + record[bit // 8 + 1 :]


def resigned(content, key):
    """Return a record that its client signed, whatever it says."""
    return content + key.sign(b"offbeat-share-v1" + content)


def test_the_helper_reads_the_binding_and_the_seed(record, binding, hpke_key):
    envelope = parse(record)
    envelope.check_signature()
    assert envelope.binding == binding
    assert envelope.open(hpke_key) == SEED


def test_the_layout_by_hand(record, client_key):
    client = client_key.public_key().public_bytes_raw()
    numbers = [number.to_bytes(8, "big") for number in (1, 2, 3)]
    info = b"t" * 32 + b"r" * 16 + client + b"".join(numbers) + b"m" * 32 + b"v" * 32
    info += bytes(7) + b"\x04" + b"h" * 32 + b"\x00\x00\x00\x05"
    assert len(info) == INFO
    assert len(record) == RECORD_BYTES == 420
    assert record[:HEAD] == info + SIGNED_HEAD
    client_key.public_key().verify(record[CIPHERTEXT:], b"offbeat-share-v1" + record[:CIPHERTEXT])


def test_only_the_helper_signs_the_head(binding, client_key, hpke_key, helper_key):
    helper, client = helper_key.public_key().public_bytes_raw(), client_key.public_key().public_bytes_raw()
    signature = helper_key.sign(b"offbeat-head-v1" + b"t" * 32 + bytes(7) + b"\x04" + b"h" * 32)
    record = seal(SEED, hpke_key.public_key().public_bytes_raw(), binding, signature, client_key)
    parse(record).check_head(helper)
    flips = [*range(8), *range(8 * 168, 8 * 208, 5), *range(8 * INFO, 8 * HEAD, 5)]
    for changed, key in [(record, client), *((flipped(record, bit), helper) for bit in flips)]:
        with pytest.raises(ValueError, match=r"head was not signed by the helper|must be in 0 …"):
            parse(changed).check_head(key)


def test_no_byte_can_be_changed(record):
    for bit in range(0, 8 * RECORD_BYTES, 5):  # at least one of each byte
        with pytest.raises(ValueError, match=r"share was not signed by its client|must be in 0 …"):
            parse(flipped(record, bit)).check_signature()


def test_no_byte_of_info_or_ciphertext_can_be_changed_by_the_client_itself(record, client_key, hpke_key):
    for bit in [*range(0, 8 * INFO, 5), *range(8 * HEAD, 8 * CIPHERTEXT, 5)]:
        changed = flipped(record, bit)
        try:
            envelope = parse(resigned(changed[:CIPHERTEXT], client_key))
        except ValueError as error:
            assert "must be in 0 …" in str(error)  # noqa: PT017 - a number is 2⁶³ or more
            continue
        with pytest.raises(
            ValueError, match=r"^the seed cannot be opened: it was sealed for another key, or the record was changed$"
        ):
            envelope.open(hpke_key)


def test_another_client_cannot_take_the_share(record, binding, hpke_key):
    thief = Ed25519PrivateKey.from_private_bytes(b"t" * 32)
    with pytest.raises(ValueError, match="share was not signed by its client"):
        parse(resigned(record[:CIPHERTEXT], thief)).check_signature()
    own = binding._replace(client=thief.public_key().public_bytes_raw())
    envelope = parse(resigned(own.to_bytes() + record[INFO:CIPHERTEXT], thief))
    envelope.check_signature()
    with pytest.raises(ValueError, match="sealed for another key, or the record was changed"):
        envelope.open(hpke_key)


def test_a_signature_of_something_else_does_not_count(record, client_key):
    bare = record[:CIPHERTEXT] + client_key.sign(record[:CIPHERTEXT])
    with pytest.raises(ValueError, match="share was not signed by its client"):
        parse(bare).check_signature()


def test_another_key_opens_nothing_and_a_point_of_low_order_is_refused(record, binding, client_key, hpke_key):
    low = resigned(record[:HEAD] + bytes(32) + record[HEAD + 32 : CIPHERTEXT], client_key)
    for content, key in ((record, X25519PrivateKey.from_private_bytes(b"y" * 32)), (low, hpke_key)):
        with pytest.raises(ValueError, match="sealed for another key, or the record was changed"):
            parse(content).open(key)
    again = seal(SEED, hpke_key.public_key().public_bytes_raw(), binding, SIGNED_HEAD, client_key)
    assert again[HEAD : HEAD + 32] != record[HEAD : HEAD + 32]  # each has its own key


@pytest.mark.parametrize("length", [0, RECORD_BYTES - 1, RECORD_BYTES + 1])
def test_other_lengths_are_refused(record, length):
    with pytest.raises(ValueError, match=rf"^a share record has 420 bytes, got {length}$"):
        parse((record + b"\x00")[:length])


@given(st.binary(min_size=RECORD_BYTES, max_size=RECORD_BYTES))
def test_random_bytes_raise_nothing_but_one_line(record):
    with pytest.raises(ValueError, match=r"^[^\n]+$"):  # noqa: PT012
        envelope = parse(record)
        assert envelope.binding.to_bytes() == record[:INFO]
        envelope.check_signature()


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_have_a_range(binding, record, name):
    limit = 2**32 if name == "epoch" else 2**63
    assert binding._replace(**{name: limit - 1}).check()
    for number in (-1, limit):
        with pytest.raises(ValueError, match=re.escape(f"{name} of a share must be in 0 … {limit - 1}, got {number}")):
            binding._replace(**{name: number}).to_bytes()
    with pytest.raises(ValueError, match=r"^visit of a share must be in 0 … \d+, got 9223372036854775809$"):
        parse(record[:80] + b"\x80" + record[81:])  # the visit's first byte


@pytest.mark.parametrize(
    ("name", "length"), [("terms", 32), ("run", 16), ("client", 32), ("model", 32), ("vector", 32), ("head", 32)]
)
def test_bytes_are_neither_padded_nor_cut(binding, name, length):
    for content in (bytes(length - 1), bytes(length + 1)):
        with pytest.raises(ValueError, match=f"{name} of a share must have {length} bytes, got {len(content)}"):
            binding._replace(**{name: content}).to_bytes()


def test_only_whole_seeds_for_whole_keys_are_sealed(binding, client_key, hpke_key):
    public = hpke_key.public_key().public_bytes_raw()
    with pytest.raises(ValueError, match="a seed has 32 bytes, got 31"):
        seal(bytes(31), public, binding, SIGNED_HEAD, client_key)
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        seal(SEED, public[:31], binding, SIGNED_HEAD, client_key)
    with pytest.raises(ValueError, match="signing key does not belong to the binding's client"):
        seal(SEED, public, binding, SIGNED_HEAD, Ed25519PrivateKey.generate())
    with pytest.raises(ValueError, match="a head's signature has 64 bytes, got 63"):
        seal(SEED, public, binding, SIGNED_HEAD[1:], client_key)
