"""The server's folder.

```
server.lock          held by the one server that uses the folder
offbeat.sqlite       the log of all that has changed the server's state
checkpoints/7.safetensors     the state after the log's row 7
models/12.safetensors         version 12 of the model, while a visit needs it
updates/             large updates; small ones are in the log's rows
partial/             uploads that are not complete yet
reserve              keeps space back for a checkpoint on a full disk
store.json           the [store] of a server whose log is elsewhere, for commands
noise-secret         the secret of the noise of private sums without a helper
```

A large update's bytes are on disk before the log's row that refers to them, and both before the client gets its
receipt. A checkpoint covers the rows up to its number; updates without a later row are deleted.
"""

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError

from offbeat.service.blobs.open_blobs import open_blobs
from offbeat.service.log.open_log import open_log, sqlite_url
from offbeat.service.store.database import numbers_of
from offbeat.service.store.disk import Disk
from offbeat.service.store.shared_files import OWNER as CHECKPOINT
from offbeat.service.store.shared_files import SharedFiles
from offbeat.service.store_settings import StoreSettings, note_shared_store

_LOCK_SECONDS = 0.5  # a command that looks whether a server runs holds the lock for an instant
_CACHE_BYTES = 2**32  # of files on their way from shared blobs
_OTHERS = 0o077  # the permissions of all but the owner


class Store:
    """The folder, which one server opens at a time; made if it does not exist.

    ``failed`` is called if the disk fails. ``shared`` are the log and blobs of several servers; then the folder holds
    this server's copies, and the attribute of this name the blobs. None: all is in the folder. ``parts`` are the
    folders in it.
    """

    def __init__(
        self,
        folder: Path,
        failed: Callable[[BaseException], None] = lambda error: None,
        shared: StoreSettings | None = None,
        parts: Sequence[str] = ("checkpoints", "models", "updates", "partial"),
    ) -> None:
        self.folder = folder
        try:
            for name in ("", *parts):
                (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = FileLock(folder / "server.lock")
            self._lock.acquire(timeout=_LOCK_SECONDS, poll_interval=0.02)
        except Timeout:
            raise OffbeatError(f"{folder} is in use by another server: stop it, or take another folder") from None
        except OSError as error:
            raise _unusable(folder, error) from None
        try:
            _close_to_others(folder)
            self.disk = Disk(folder / "reserve", failed)
            url = sqlite_url(folder / "offbeat.sqlite") if shared is None else shared.log
            self.log = open_log(url, self.disk.mark_full)
            self.shared = None if shared is None else self._shared_files(shared.blobs)
            note_shared_store(folder, shared)
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise _unusable(folder, error) from None
            raise

    def take_newest_checkpoint(self) -> None:
        """Get the newest checkpoint of all servers, if the folder has none as new."""
        values, own = self.newest_shared_checkpoint(), max(numbers_of(self.folder / "checkpoints"), default=0)
        if self.shared is not None and values is not None and values["number"] > own:
            self.shared.download_checkpoint(values)

    def newest_shared_checkpoint(self) -> dict[str, Any] | None:
        """Return the arguments of the last row of a checkpoint; None if there is none."""
        row = self.log.newest_now(CHECKPOINT)
        return None if row is None else row.values

    def _shared_files(self, url: str) -> SharedFiles:
        try:
            return SharedFiles(open_blobs(url, self.folder / "partial", _CACHE_BYTES), self.log.run, self.folder)
        except BaseException:
            self.log.close()
            raise

    def close(self) -> None:
        """Let another server use the folder."""
        self.log.close()
        self._lock.release()


def _unusable(folder: Path, error: OSError) -> OffbeatError:
    return OffbeatError(f"cannot use the folder {folder}: {error.strerror}: set service.folder")


def _close_to_others(folder: Path) -> None:
    if os.name == "nt":
        return
    for path in (folder, *folder.rglob("*")):
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(path.lstat().st_mode)
            if mode & _OTHERS and not path.is_symlink():
                path.chmod(mode & ~_OTHERS)
