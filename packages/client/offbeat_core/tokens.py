"""Tokens: 256 random bits after a prefix. Servers keep only their hashes."""

import hashlib
import re
import secrets

_RANDOM_BYTES = 32
_RANDOM_PART = re.compile(r"[A-Za-z0-9_-]{43}")  # 32 bytes in url-safe base64 without padding


def new_token(prefix: str) -> str:
    """Return a new random token."""
    return prefix + secrets.token_urlsafe(_RANDOM_BYTES)


def token_hash(token: str) -> str:
    """Return the SHA-256 in hexadecimal digits of a token that ``looks_like`` one."""
    # Trying 2²⁵⁶ tokens is impossible, so a fast hash without salt is enough.
    return hashlib.sha256(token.encode("ascii")).hexdigest()


def looks_like(token: str, prefix: str) -> bool:
    """Return whether an untrusted text of any length has the form of a new token."""
    return token.startswith(prefix) and _RANDOM_PART.fullmatch(token, len(prefix)) is not None
