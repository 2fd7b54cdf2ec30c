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

from offbeat_client.errors import OffbeatError
from offbeat_client.files import write_durably

_PREFIX = "obk_"


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
    return key


def _text(key: bytes) -> str:
    return _PREFIX + base64.urlsafe_b64encode(key).rstrip(b"=").decode()
