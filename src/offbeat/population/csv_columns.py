"""Columns of numbers from a user's CSV file, and checks of its rows."""

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.files import encoding_of

ColumnType = Literal["int64", "float64"]

_LONGEST_HEADER = 1_000_000
_MARK_BYTES = 3  # of UTF-8; that of UTF-16 has two
_INVALID_VALUE = re.compile(r"In CSV column #(\d+): Row #(\d+): .*?: invalid value '(.*)'", re.DOTALL)


def read_columns(path: Path, columns: Mapping[str, ColumnType]) -> dict[str, NDArray[Any]]:
    """Return some columns of a CSV file with a header, ``(rows,)`` by name.

    Floats may still be NaN or infinite.

    Raises:
        OffbeatError: The file cannot be read, a column is missing or occurs twice, or a value is not a number; the
            message names file and row. The header is row 1, and empty lines do not count.
    """
    # Imported here, because it takes long to import, and most populations need no file.
    import pyarrow as pa
    import pyarrow.csv

    header: list[str] = []
    try:
        with path.open("rb") as file:
            encoding = encoding_of(file.read(_MARK_BYTES))
        with path.open(encoding=encoding, newline="") as text:
            header = next(csv.reader([text.readline(_LONGEST_HEADER)]), [])
        for name in columns:
            if header.count(name) != 1:
                for separator, plural in ((";", "semicolons"), ("\t", "tabs")):
                    if name not in header and any(name in cell.split(separator) for cell in header):
                        raise OffbeatError(f"{path}: separate the columns by commas, not by {plural}")
                many = "no" if name not in header else "more than one"
                raise OffbeatError(f"{path} has {many} column {name!r}: its header is {','.join(header)[:200]!r}")
        with path.open("rb") as file:
            table = pyarrow.csv.read_csv(
                file,
                # Messages name rows only if a single thread reads.
                read_options=pyarrow.csv.ReadOptions(
                    use_threads=False, encoding="utf8" if encoding.startswith("utf-8") else encoding
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    include_columns=list(columns),
                    column_types={name: pa.type_for_alias(kind) for name, kind in columns.items()},
                    null_values=[""],
                ),
            )
    except UnicodeDecodeError:
        raise OffbeatError(f"{path} is neither UTF-8 nor UTF-16 with its mark: save it as UTF-8") from None
    except (OSError, ValueError, KeyError, csv.Error) as error:
        if match := _INVALID_VALUE.search(str(error)):
            name = header[int(match[1])]
            unit = " of seconds" if name.endswith("_seconds") else ""
            kind = "a whole number" if columns[name] == "int64" else f"a number{unit}"
            raise OffbeatError(f"{path}, row {match[2]}: {name} must be {kind}, not {match[3][:80]!r}") from None
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise OffbeatError(f"cannot read {path}: {reason[:300]}") from error
    for name in columns:
        column = table.column(name)
        if column.null_count:
            row = column.is_null().to_pylist().index(True) + 2
            raise OffbeatError(f"{path}, row {row}: {name} is empty")
    return {name: table.column(name).to_numpy() for name in columns}


def check_rows(path: Path, is_wrong: NDArray[np.bool_], describe: Callable[[int], str]) -> None:
    """Raise an error with ``describe(index)`` for the first wrong row of a file."""
    if is_wrong.any():
        index = int(np.argmax(is_wrong))
        raise OffbeatError(f"{path}, row {index + 2}: {describe(index)}")


def check_numbers(path: Path, name: str, values: NDArray[np.int64], count: int, plural: str) -> None:
    """Refuse values that are not numbers of ``count`` things, 0 … count − 1."""
    check_rows(
        path,
        (values < 0) | (values >= count),
        lambda index: f"{name} is {values[index]}, but the {plural} are 0 … {count - 1}",
    )
