"""Readers of a server's folder: the database, and files named by a number."""

import sqlite3
from pathlib import Path


def open_read_only(path: Path, *, is_fixed: bool = False) -> sqlite3.Connection:
    """Open a database that exists; the caller closes the connection.

    ``is_fixed`` promises that nothing changes the database; then SQLite needs no files beside it.
    """
    # as_uri escapes the characters of a folder's name that have a meaning in a URI, such as # and %.
    return sqlite3.connect(f"{path.absolute().as_uri()}?{'immutable=1' if is_fixed else 'mode=ro'}", uri=True)


def numbers_of(folder: Path) -> list[int]:
    """Return the numbers that name safetensors files in a folder.

    Files with other names are ignored.
    """
    return [int(path.stem) for path in folder.glob("*.safetensors") if path.stem.isdecimal()]
