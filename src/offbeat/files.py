"""Files that are complete or absent, also after a kill or a power cut."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO


def replace_durably(path: Path, write: Callable[[BinaryIO], Any], *, mode: int = 0o666) -> None:
    """Write a file such that ``path`` holds the old or the new content; return once the new one is on disk.

    Args:
        path: The file.
        write: Writes the content into a file opened for writing, buffered.
        mode: Permissions of the file, before the umask.

    Raises:
        OSError: The disk is full, or the folder cannot be written; ``path`` is as before.
    """
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)  # it would keep its own permissions
    try:
        with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            write(file)
        rename_durably(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def rename_durably(partial: Path, path: Path) -> None:
    """Rename ``partial`` to ``path`` once its content is on disk."""
    sync_file(partial)
    partial.replace(path)


def sync_file(file: Path | int) -> None:
    """Wait until the bytes of a file, given by its path or descriptor, are on disk."""
    if isinstance(file, Path):
        with file.open("rb+") as opened:
            sync_file(opened.fileno())
    elif hasattr(os, "fdatasync"):  # Linux; it leaves out times
        os.fdatasync(file)
    else:
        os.fsync(file)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk; Windows cannot, so there it returns at once."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
