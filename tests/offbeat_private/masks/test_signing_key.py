import base64
import stat

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat
from hypothesis import assume, given
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably
from offbeat_private.masks import signing_key as module
from offbeat_private.masks.signing_key import public_bytes, public_text, signing_key

PRIME = 2**255 - 19
D = -121665 * pow(121666, -1, PRIME) % PRIME  # of the curve −x² + y² = 1 + D x² y²


def pem(key, encryption):
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)


def test_the_key_is_made_once_for_its_owner_only_on_disk_before_it_is_used(tmp_path, monkeypatch):
    path, written = tmp_path / "client.key", []
    monkeypatch.setattr(module, "write_durably", lambda *args, mode: written.append(mode) or write_durably(*args, mode))
    key = signing_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = path.read_bytes()
    assert signing_key(path).private_bytes_raw() == key.private_bytes_raw()
    assert path.read_bytes() == content
    assert signing_key(tmp_path / "other.key").private_bytes_raw() != key.private_bytes_raw()
    assert written == [0o600] * 2


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        pem(X25519PrivateKey.generate(), NoEncryption()),
        pem(Ed25519PrivateKey.generate(), BestAvailableEncryption(b"password")),
    ],
)
def test_another_file_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "client.key"
    path.write_bytes(content)
    with pytest.raises(OffbeatError, match=r"client\.key is not an Ed25519 key: [^\n]+$"):
        signing_key(path)
    assert path.read_bytes() == content


def test_the_public_text_by_hand(client_key):
    raw = client_key.public_key().public_bytes_raw()
    text = public_text(client_key)
    assert text == "obk_" + base64.urlsafe_b64encode(raw).decode()[:43]
    assert public_bytes(text) == raw


@given(st.binary(min_size=32, max_size=32))
def test_every_key_has_one_text(raw):
    assume(int.from_bytes(raw, "little") % 2**255 > 1)  # hypothesis begins with the simplest bytes
    text = "obk_" + base64.urlsafe_b64encode(raw).decode()[:43]
    assert public_bytes(text) == raw
    other = text[:-1] + chr(ord(text[-1]) + 1)  # differs in bits that belong to no byte
    with pytest.raises(ValueError, match="a client's key is 'obk_'"):
        public_bytes(other)


@pytest.mark.parametrize(
    "text",
    ["", "obk_", "A" * 43, "obk_" + "A" * 42, "obk_" + "A" * 44, "obk_" + "A" * 43 + "=", "obk_" + "+" * 43,
     "obk_obk_" + "A" * 43, "obc_" + "A" * 43, "obk_" + "A" * 43 + "\n", " obk_" + "A" * 43, "obk_" + "ä" * 43],
)  # fmt: skip
def test_other_texts_are_refused_in_one_line(text):
    with pytest.raises(ValueError, match=r"^a client's key is 'obk_' and 43 [^\n]+$"):
        public_bytes(text)


def text_of(y, sign=0):
    return "obk_" + base64.urlsafe_b64encode((y | sign << 255).to_bytes(32, "little")).decode()[:43]


def verifies(key, signature, message):
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except InvalidSignature:
        return False
    return True


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("y", [0, 1, PRIME - 1, PRIME, PRIME + 1])
def test_a_key_for_which_anybody_can_sign_is_refused(y, sign):
    key = (y | sign << 255).to_bytes(32, "little")
    forged = (1).to_bytes(32, "little") + bytes(32)  # R is the neutral point, and s = 0
    assert any(verifies(key, forged, b"message %d" % number) for number in range(100))
    with pytest.raises(ValueError, match=r"^anybody can sign for the key obk_"):
        public_bytes(text_of(y, sign))


def root(square):
    """Return a square root modulo 2^255 − 19; None if there is none."""
    candidate = pow(square, (PRIME + 3) // 8, PRIME)
    for value in (candidate, candidate * pow(2, (PRIME - 1) // 4, PRIME) % PRIME):
        if value * value % PRIME == square % PRIME:
            return value
    return None


def test_a_key_of_order_8_is_refused():
    # Its double has y = 0, so x² = −y², and by the curve D y⁴ + 2 y² − 1 = 0.
    roots = [root((sign * root(1 + D) - 1) * pow(D, -1, PRIME)) for sign in (1, -1)]
    (y,) = [found for found in roots if found is not None]
    for value in (y, PRIME - y):
        for sign in (0, 1):
            with pytest.raises(ValueError, match="anybody can sign"):
                public_bytes(text_of(value, sign))
    assert public_bytes(text_of(3)) == (3).to_bytes(32, "little")
