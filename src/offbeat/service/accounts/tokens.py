"""Tokens: 256 random bits after a prefix; the server keeps their hashes only."""

import hashlib
import re
import secrets

_RANDOM_BYTES = 32
_RANDOM_PART = re.compile(r"[A-Za-z0-9_-]{43}")  # 32 bytes in url-safe base64 without padding


def new_token(prefix: str) -> str:
    """Return a random token."""
    return prefix + secrets.token_urlsafe(_RANDOM_BYTES)


def token_hash(token: str) -> str:
    """Return the SHA-256, in hexadecimal, of a token that passes ``looks_like``."""
    # Nobody can try 2²⁵⁶ tokens, so a fast hash without salt is enough.
    return hashlib.sha256(token.encode("ascii")).hexdigest()


def looks_like(token: str, prefix: str) -> bool:
    """Return whether an untrusted text of any length has the form of ``new_token(prefix)``."""
    return token.startswith(prefix) and _RANDOM_PART.fullmatch(token, len(prefix)) is not None
