"""A disk that loses its power: only what was brought to it by fsync is there afterwards.

It is as hostile as a file system may be: a file's content is that of its last fsync, or nothing; a name is in a folder
only if the folder was synced since; but what was deleted is gone at once. Or chance decides, for each name and each
block of a file, whether what happened since the last fsync is there. SQLite's own files are taken as they were after
its last commit, if it was told to wait for the disk.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import Engine, event

DATABASE = ("offbeat.sqlite", "offbeat.sqlite-wal")
_NOT_LOST = (*DATABASE, "offbeat.sqlite-shm")
_BLOCK = 64  # bytes; a disk's are larger, but so are its files


class Power:
    """Watches a folder while code runs that writes into it, and calls ``after_each`` after each fsync and commit.

    ``without`` says whose fsyncs are left out, to see that somebody notices: ``file`` or ``folder``, and the name of
    the folder that it is or is in.
    """

    def __init__(
        self,
        folder: Path,
        without: tuple[str, str] | None = None,
        after_each: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder = folder
        self._without = without
        self._after_each = after_each
        self._kept: dict[int, int] = {}  # a descriptor of each inode, so that its number is not given to another file
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
        event.listen(Engine, "commit", committed)
        try:
            yield
        finally:
            event.remove(Engine, "commit", committed)
            os.fsync, os.fdatasync = fsync, fdatasync
            for descriptor in self._kept.values():
                os.close(descriptor)

    def lose(self, target: Path, chance: Random | None = None) -> None:
        """Write what would be there after a loss of power into a new folder.

        ``chance`` decides what is there of all that came after an fsync; None: nothing, but deletions.
        """
        with self._lock:
            for folder in sorted(path for path in (self._folder, *self._folder.rglob("*")) if path.is_dir()):
                copy = target / folder.relative_to(self._folder)
                copy.mkdir()
                for name, inode in self._found(folder, chance).items():
                    synced = self._contents.get(inode, b"")
                    copied = synced if chance is None else _mixed(synced, self._content(inode), chance)
                    (copy / name).write_bytes(copied)
            for name, content in self._database.items():
                (target / name).write_bytes(content)

    def _found(self, folder: Path, chance: Random | None) -> dict[str, int]:
        """Return the names that are there after a loss of power, with their inodes."""
        before, now = self._names.get(folder, {}), self._listed(folder)
        names = {name: [before.get(name), now.get(name)] for name in sorted({*before, *now})}
        if chance is None:
            return {name: was for name, (was, inode) in names.items() if was is not None and inode is not None}
        drawn = {name: chance.choice(inodes) for name, inodes in names.items()}
        return {name: inode for name, inode in drawn.items() if inode is not None}

    def _listed(self, folder: Path) -> dict[str, int]:
        names: dict[str, int] = {}
        for path in folder.iterdir():
            if path.is_file() and path.name not in _NOT_LOST:
                try:
                    descriptor = os.open(path, os.O_RDONLY)
                except FileNotFoundError:  # another thread has deleted it
                    continue
                names[path.name] = os.fstat(descriptor).st_ino
                self._keep(descriptor)
        return names

    def _keep(self, descriptor: int) -> None:
        if self._kept.setdefault(os.fstat(descriptor).st_ino, descriptor) != descriptor:
            os.close(descriptor)

    def _content(self, inode: int) -> bytes:
        descriptor = self._kept[inode]
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)

    def _synced(self, descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if self._without == (("folder", path.name) if path.is_dir() else ("file", path.parent.name)):
            self.left_out += 1
            return
        with self._lock:
            if path.is_dir():
                self._names[path] = self._listed(path)
            else:
                inode = os.fstat(descriptor).st_ino
                self._keep(os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY))  # also of one without a name
                self._contents[inode] = self._content(inode)
        self._after_each()

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
        self._after_each()


def _mixed(before: bytes, now: bytes, chance: Random) -> bytes:
    """Return a file of which each block is the old or the new one, in the old or the new length."""
    length = len(chance.choice((before, now)))
    blocks: list[bytes] = []
    for first in range(0, length, _BLOCK):
        block = slice(first, min(first + _BLOCK, length))
        blocks.append(chance.choice((before, now))[block].ljust(block.stop - first, b"\0"))
    return b"".join(blocks)
