"""A server's database, read without the server."""

import json
import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from offbeat_core.errors import OffbeatError
from offbeat_core.files import files_in

from offbeat.service.log.log import BEST, COORDINATOR, Row

FORM = 4
"""The form of the tables and of checkpoints. Raise it when one changes: a folder of another form is refused."""

RARE = f"owner != '{COORDINATOR}'"
"""The rows of the log that are none of the coordinator's calls, which have an index."""

COLUMNS = "number, epoch, owner, name, arguments, digest, blob, entry, head"


def database_of(folder: Path) -> Path:
    """Return the database in a server's folder."""
    path = folder / "offbeat.sqlite"
    if not path.exists():
        raise OffbeatError(f"{folder} is not a server's folder: it does not hold offbeat.sqlite")
    return path


def open_read_only(path: Path, *, is_fixed: bool = False) -> sqlite3.Connection:
    """Open a database that exists, and that nothing changes if it ``is_fixed``."""
    # as_uri escapes the characters of a folder's name that have a meaning in a URI, such as # and %.
    return sqlite3.connect(f"{path.absolute().as_uri()}?{'immutable=1' if is_fixed else 'mode=ro'}", uri=True)


@contextmanager
def opened(folder: Path, *, is_fixed: bool = False) -> Generator[sqlite3.Connection]:
    """Open the database in a server's folder to read it.

    Raises:
        OffbeatError: The folder has none, or one of another form.
        sqlite3.Error: It cannot be read, within the context, too.
    """
    with closing(open_read_only(database_of(folder), is_fixed=is_fixed)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        if "runs" in tables:
            for (form,) in database.execute("SELECT form FROM runs"):  # none if the first start was killed
                check_form(folder, form)
        elif "log" in tables:
            check_form(folder, 2)
        yield database


def best_version(database: sqlite3.Connection) -> dict[str, Any] | None:
    """Return the arguments of the row that names the best version; None without."""
    query = f"SELECT arguments FROM log WHERE {RARE} AND owner = ? ORDER BY number DESC LIMIT 1"
    row = database.execute(query, (BEST,)).fetchone()
    return None if row is None else json.loads(row[0])


def check_form(place: object, found: int) -> None:
    """Raise ``OffbeatError`` unless the tables of a database have the present form."""
    if found != FORM:
        raise OffbeatError(
            f"{place} holds a run of another version of Offbeat (form {found}, this one reads {FORM}): "
            "continue it with that version, or take another service.folder"
        )


def rows_after(database: sqlite3.Connection, number: int) -> Iterator[Row]:
    """Yield the rows of the log with later numbers, in order, without small updates."""
    for row in database.execute(f"SELECT {COLUMNS} FROM log WHERE number > ? ORDER BY number", (number,)):
        yield Row(*row)


def numbers_of(folder: Path) -> list[int]:
    """Return the numbers that name safetensors files in a folder."""
    return [int(path.stem) for path in files_in(folder, "*.safetensors") if path.stem.isdecimal()]
