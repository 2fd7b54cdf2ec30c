"""Digests of updates: SHA-256, or BLAKE3 where its package is installed.

A digest is 64 hexadecimal digits; those of BLAKE3 stand after ``blake3:``.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from offbeat_core.errors import OffbeatError

DigestKind = Literal["sha256", "blake3"]
"""A name of a digest, in settings, visits and the headers of updates."""

_PREFIX = "blake3:"


@cache
def has_blake3() -> bool:
    """Return whether the package ``blake3`` is installed."""
    return find_spec("blake3") is not None


def named_digest(kind: DigestKind, digits: str) -> str:
    """Return a digest from its digits."""
    return _PREFIX + digits if kind == "blake3" else digits


def kind_of(digest: str) -> DigestKind:
    """Return the kind of a digest."""
    return "blake3" if digest.startswith(_PREFIX) else "sha256"


def new_digest(kind: DigestKind) -> Callable[..., Any]:
    """Return ``hashlib.sha256`` or ``blake3.blake3``.

    Raises:
        OffbeatError: The package is missing.
    """
    if kind == "sha256":
        return hashlib.sha256
    if not has_blake3():
        raise OffbeatError("this needs the package blake3: pip install blake3")
    return import_module("blake3").blake3


def digest_of_file(path: Path, kind: DigestKind) -> str:
    """Return the digest of a file; raises ``OSError`` if it cannot be read."""
    return named_digest(kind, digits_of_file(path, kind))


def digits_of_file(path: Path, kind: DigestKind) -> str:
    """Return the digits of a file's digest; see ``digest_of_file``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, new_digest(kind)).hexdigest()
