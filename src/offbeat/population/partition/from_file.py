"""Everybody holds what a file says."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from offbeat.errors import OffbeatError
from offbeat.population.partition.shards import by_owner, check_clients
from offbeat.randomness import Purpose, generator

_HEADER = "client,example"
# Two integers of 18 digits with signs, quotes, comma and line end have 47.
_MAX_BYTES_A_LINE = 64


def from_file(path: Path, examples: int, clients: int) -> list[NDArray[np.int64]]:
    """Divide the examples as a CSV file says.

    The first line is ``client,example``; each other line gives an example to a client, both numbered from 0. Lines and
    columns may be in any order. Examples that are not mentioned are not used.

    Args:
        path: The file, UTF-8, not compressed.
        examples: How many examples there are, n.
        clients: How many clients, N.

    Returns:
        One int64 array of example numbers a client, in an order that is random, but always the same.

    Raises:
        OffbeatError: The file cannot be read or is no such CSV; a client or an example does not exist; an example is
            given twice; a client has none; or there are no clients, or more than examples. The message names the file
            and the line or the client.
    """
    check_clients(examples, clients)
    columns = _columns(path, _content(path, _MAX_BYTES_A_LINE * (examples + 1)))
    client, example = (_integers(path, name, columns[name]) for name in _HEADER.split(","))
    _check_range(path, "client", client, clients)
    _check_range(path, "example", example, examples)
    _check_given_once(path, client, example, examples)
    idle = np.flatnonzero(np.bincount(client, minlength=clients) == 0)
    if len(idle):
        raise OffbeatError(
            f"{path}: client {idle[0]} has no examples, but each of 0 … {clients - 1} needs at least one"
        )
    owner = np.full(examples, -1)
    owner[example] = client
    return by_owner(owner, clients, generator(0, Purpose.PARTITION))


def _content(path: Path, limit: int) -> bytes:
    """Return what the file holds."""
    try:
        with path.open("rb") as file:
            content = file.read(limit + 1)
    except (OSError, ValueError) as error:  # a ValueError: there is a zero byte in the path
        raise OffbeatError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    if len(content) > limit:
        raise OffbeatError(f"{path} has more than {limit} bytes, which is too much for a line an example")
    try:
        content.decode()
    except UnicodeDecodeError:
        raise OffbeatError(f"cannot read {path}: it is not UTF-8") from None
    return content


def _columns(path: Path, content: bytes) -> pa.Table:
    """Return the two columns as text."""
    misfits: list[csv.InvalidRow] = []

    def stop(row: csv.InvalidRow) -> str:
        misfits.append(row)
        return "error"

    try:
        table = csv.read_csv(
            pa.BufferReader(content),
            # Only one thread knows line numbers.
            read_options=csv.ReadOptions(use_threads=False),
            parse_options=csv.ParseOptions(invalid_row_handler=stop, ignore_empty_lines=False),
            convert_options=csv.ConvertOptions(column_types={name: pa.string() for name in _HEADER.split(",")}),
        )
    except pa.ArrowInvalid:
        if misfits and misfits[0].expected_columns == 2:
            row = misfits[0]
            raise OffbeatError(f"{path}, line {row.number}: there must be 2 values, not {row.actual_columns}") from None
        raise OffbeatError(f"{path} is not CSV with {_HEADER!r} as its first line and integers below") from None
    if sorted(table.column_names) != sorted(_HEADER.split(",")):
        found = ",".join(table.column_names)
        raise OffbeatError(f"{path}: the first line must be {_HEADER!r}, not {found[:40]!r}")
    return table


def _integers(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return a column of text as int64."""
    # pyarrow makes these functions when it is imported, which the type checker cannot see.
    text = pc.utf8_trim(column, characters=" ")  # pyright: ignore[reportAttributeAccessIssue]
    # The cast alone would also take hexadecimal numbers.
    fits = pc.match_substring_regex(text, "^-?[0-9]{1,18}$")  # pyright: ignore[reportAttributeAccessIssue]
    wrong = np.flatnonzero(~fits.to_numpy())
    if len(wrong):
        found = text[int(wrong[0])].as_py()
        raise OffbeatError(f"{path}, line {wrong[0] + 2}: the {name} must be an integer, not {found[:40]!r}")
    return text.cast(pa.int64()).to_numpy()


def _check_range(path: Path, name: str, numbers: NDArray[np.int64], count: int) -> None:
    """Refuse numbers outside of 0 … count − 1."""
    wrong = np.flatnonzero((numbers < 0) | (numbers >= count))
    if len(wrong):
        row = wrong[0]
        raise OffbeatError(f"{path}, line {row + 2}: there is no {name} {numbers[row]}, only 0 … {count - 1}")


def _check_given_once(path: Path, client: NDArray[np.int64], example: NDArray[np.int64], examples: int) -> None:
    """Refuse a second line on one example."""
    rows = np.arange(len(example))
    first = np.empty(examples, np.int64)
    # Of several values for one place numpy keeps the last; backwards, that is the first row.
    first[example[::-1]] = rows[::-1]
    again = np.flatnonzero(first[example] != rows)
    if len(again):
        row = again[0]
        before = first[example[row]]
        raise OffbeatError(
            f"{path}, line {row + 2}: example {example[row]} was already given to client {client[before]} "
            f"on line {before + 2}; an example can be given once"
        )
