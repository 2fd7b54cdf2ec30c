"""The secret of which servers without a helper make their noise.

A server alone makes one in its folder. Servers that share a store have a file each, which the operator copies; the
run's configuration in the log holds its fingerprint, so that no server goes on with another.
"""

import hmac
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from offbeat_core.errors import OffbeatError
from offbeat_core.files import sync_folder, write_durably

NOISE_SECRET = "noise-secret"
"""The file in the server's folder."""

_BYTES = 32


def noise_secret(folder: Path) -> bytes:
    """Return the secret in a server's folder, 32 bytes, made once."""
    path = folder / NOISE_SECRET
    try:
        if not path.exists():
            if (folder / "offbeat.sqlite").exists():
                raise OffbeatError(
                    f"{path} is missing, without which the run there cannot resume (backups lack it): put it back, or "
                    "take another service.folder, and this run's model as service.initial_model"
                )
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _make(path)
        content = path.read_bytes()
    except OSError as error:
        raise OffbeatError(f"cannot use {path}: {error.strerror}") from None
    if len(content) != _BYTES:
        raise OffbeatError(f"{path} is broken: restore a backup")
    return content


def copied_noise_secret(path: Path) -> bytes:
    """Return the secret in a file that the operator copies to each server, 32 bytes."""
    try:
        is_open = os.name != "nt" and stat.S_IMODE(path.stat().st_mode) & 0o077
        content = path.read_bytes()
    except OSError as error:
        raise OffbeatError(
            f"cannot read service.noise_secret = {path}: {error.strerror}: copy it from another server of this run, or "
            f"make it for a new run: (umask 077; head -c {_BYTES} /dev/urandom > {path.name})"
        ) from None
    if len(content) != _BYTES:
        raise OffbeatError(f"service.noise_secret = {path} must have {_BYTES} random bytes: copy it again")
    if is_open:
        raise OffbeatError(f"others may read service.noise_secret: chmod 600 {path}")
    return content


def fingerprint(secret: bytes) -> str:
    """Return 32 digits by which a secret is known, and of which it cannot be made."""
    return hmac.digest(secret, b"fingerprint", "sha256").hex()[:32]


def _make(path: Path) -> None:
    new = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
    write_durably(new, secrets.token_bytes(_BYTES), mode=0o600)
    with suppress(FileExistsError):
        os.link(new, path)  # never replaces a file
    new.unlink()
    sync_folder(path.parent)
