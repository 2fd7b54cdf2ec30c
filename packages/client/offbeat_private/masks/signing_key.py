"""A client's Ed25519 key: a file, and the text of its public half."""

import base64
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably

_PREFIX = "obk_"
_PRIME = 2**255 - 19
_ORDER_8 = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826  # y of two of the points of order 8
_SMALL_ORDERS = frozenset({0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8})


def signing_key(path: Path) -> Ed25519PrivateKey:
    """Return the key in a PEM file that only its owner may read.

    If the file does not exist, it is made with a new key, on disk before the key is used.

    Raises:
        OffbeatError: The file is not an unencrypted Ed25519 key.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        key = Ed25519PrivateKey.generate()
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_durably(path, pem, mode=0o600)
        return key
    try:
        key = load_pem_private_key(content, password=None)
    except (TypeError, ValueError):  # TypeError: it is encrypted
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise OffbeatError(f"{path} is not an Ed25519 key: restore it, or remove it and have the new key enrolled")
    return key


def public_text(key: Ed25519PrivateKey) -> str:
    """Return the public key as text: ``obk_`` and url-safe base64."""
    return _text(key.public_key().public_bytes_raw())


def public_bytes(text: str) -> bytes:
    """Return the 32 bytes of an untrusted ``public_text``; else ``ValueError``."""
    try:
        key = base64.b64decode(text.removeprefix(_PREFIX) + "=", altchars=b"-_", validate=True)
    except ValueError:
        key = b""
    # Some texts differ in unused bits alone: a key has one text only.
    if len(key) != 32 or _text(key) != text:
        raise ValueError(f"a client's key is {_PREFIX!r} and 43 letters, digits, - or _, got {text[:60]!r}")
    if not _is_secret(key):
        raise ValueError(f"anybody can sign for the key {text}: make one with offbeat client key")
    return key


def _is_secret(key: bytes) -> bool:
    """Return whether signatures of an Ed25519 key need its private half.

    They do not for points of the orders 1, 2, 4 and 8, which the y coordinates tell. A y that is not reduced would be
    another text of a point (RFC 8032, section 5.1.3).
    """
    y = int.from_bytes(key, "little") & ((1 << 255) - 1)
    return y < _PRIME and y not in _SMALL_ORDERS


def _text(key: bytes) -> str:
    return _PREFIX + base64.urlsafe_b64encode(key).rstrip(b"=").decode()
