"""The secret of which a server without a helper makes its noise."""

import os
import secrets
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


def _make(path: Path) -> None:
    new = path.with_name(f"{path.name}-{secrets.token_hex(8)}")
    write_durably(new, secrets.token_bytes(_BYTES), mode=0o600)
    with suppress(FileExistsError):
        os.link(new, path)  # never replaces a file
    new.unlink()
    sync_folder(path.parent)
