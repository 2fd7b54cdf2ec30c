"""A disk that loses its power: only what was brought to it by fsync is there afterwards.

It is as hostile as a file system may be: a file's content is that of its last fsync, or nothing; a name is in a folder
only if the folder was synced since; but what was deleted is gone at once. SQLite's own files are taken as they were
after its last commit, if it was told to wait for the disk.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event

DATABASE = ("offbeat.sqlite", "offbeat.sqlite-wal")


class Power:
    """Watches a folder while code runs that writes into it.

    Args:
        folder: What may be lost.
        without: Whose fsyncs are left out, to see that somebody notices: ``file`` or ``folder``, and the name of the
            folder that it is or is in.
    """

    def __init__(self, folder: Path, without: tuple[str, str] | None = None) -> None:
        self._folder = folder
        self._without = without
        self._contents: dict[int, bytes] = {}  # by inode, as of its last fsync
        self._names: dict[Path, dict[str, int]] = {}  # by folder, as of its last fsync
        self._database: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self.left_out = 0

    @contextmanager
    def on(self) -> Iterator[None]:
        """Let fsync and commit be seen."""
        fsync, fdatasync = os.fsync, os.fdatasync

        def seen(descriptor: int) -> None:
            fsync(descriptor)
            self._synced(descriptor)

        def committed(connection: Any) -> None:
            self._committed(connection)

        os.fsync = os.fdatasync = seen  # pyright: ignore[reportAttributeAccessIssue]
        from sqlalchemy import Engine

        event.listen(Engine, "commit", committed)
        try:
            yield
        finally:
            event.remove(Engine, "commit", committed)
            os.fsync, os.fdatasync = fsync, fdatasync

    def lose(self, target: Path) -> None:
        """Write what would be there after a loss of power into another folder."""
        with self._lock:
            target.mkdir()
            for folder in sorted(path for path in self._folder.rglob("*") if path.is_dir()):
                (target / folder.relative_to(self._folder)).mkdir()
            for folder, names in self._names.items():
                for name, inode in names.items():
                    if (folder / name).exists() and name not in DATABASE:
                        path = target / folder.relative_to(self._folder) / name
                        path.write_bytes(self._contents.get(inode, b""))
            for name, content in self._database.items():
                (target / name).write_bytes(content)

    def _synced(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if self._without == (("folder", path.name) if path.is_dir() else ("file", path.parent.name)):
            self.left_out += 1
            return
        with self._lock:
            if path.is_dir():
                with os.scandir(path) as entries:
                    self._names[path] = {entry.name: entry.inode() for entry in entries if entry.is_file()}
            else:
                with open(f"/proc/self/fd/{descriptor}", "rb") as file:  # noqa: PTH123 - also of one without a name
                    self._contents[os.fstat(descriptor).st_ino] = file.read()

    def _committed(self, connection: Any) -> None:
        # The event comes just before the commit, so it is done here, and again, to no effect, afterwards.
        raw: sqlite3.Connection = connection.connection.driver_connection
        raw.commit()
        if raw.execute("PRAGMA synchronous").fetchone()[0] < 2:
            self.left_out += 1
            return
        with self._lock:
            self._database = {
                name: (self._folder / name).read_bytes() for name in DATABASE if (self._folder / name).exists()
            }
