"""A table that grows: written as closed Parquet files, joined into one when it is whole."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from offbeat.errors import OffbeatError
from offbeat.files import rename_durably

MOST_ROWS = 10**8  # that are read: a small file can claim far more than memory holds

_ROWS_A_GROUP = 1 << 17

Columns = Mapping[str, NDArray[Any]]


class Parts:
    """The parts of one table, ``NAME-00000.parquet`` and so on.

    Args:
        folder: Where they are.
        name: The table's name.
        schema: Its columns.
        number: How many parts there are already that count; others are removed.
    """

    def __init__(self, folder: Path, name: str, schema: pa.Schema, number: int = 0) -> None:
        self._folder = folder
        self._name = name
        self._schema = schema
        self._rows: list[Sequence[Any]] = []
        self.number = number
        for path in part_paths(folder, name)[number:]:
            path.unlink()

    def __len__(self) -> int:
        """Return how many rows have not been written yet."""
        return len(self._rows)

    def add(self, row: Sequence[Any]) -> None:
        """Add a row, its values in the order of the schema."""
        self._rows.append(row)

    def close_part(self) -> None:
        """Write the rows that have not been written yet as a part of their own."""
        if not self._rows:
            return
        columns = dict(zip(self._schema.names, zip(*self._rows, strict=True), strict=True))
        path = self._folder / f"{self._name}-{self.number:05}.parquet"
        partial = path.with_name(f".{path.name}.partial")
        pq.write_table(pa.table({name: list(values) for name, values in columns.items()}, self._schema), partial)
        rename_durably(partial, path)
        self._rows.clear()
        self.number += 1

    def join(self, path: Path) -> None:
        """Write all closed parts as one file, which is the same however the rows were divided."""
        with pq.ParquetWriter(path, self._schema) as writer:
            waiting = self._schema.empty_table()
            for part in part_paths(self._folder, self._name):
                waiting = pa.concat_tables([waiting, pq.read_table(part, schema=self._schema)])
                while waiting.num_rows >= _ROWS_A_GROUP:
                    writer.write_table(waiting.slice(0, _ROWS_A_GROUP).combine_chunks())
                    waiting = waiting.slice(_ROWS_A_GROUP)
            if waiting.num_rows:
                writer.write_table(waiting.combine_chunks())


def part_paths(folder: Path, name: str) -> list[Path]:
    """Return the closed parts of a table, in order."""
    # By the length of the name first: after 99,999 comes 100,000.
    return sorted(folder.glob(f"{name}-[0-9]*.parquet"), key=lambda path: (len(path.name), path.name))


def read_columns(paths: Sequence[Path]) -> Columns:
    """Return the columns of one or more files that together are a table.

    Raises:
        OffbeatError: They claim more than 100,000,000 rows.
    """
    rows = sum(pq.read_metadata(path).num_rows for path in paths)
    if rows > MOST_ROWS:
        raise OffbeatError(
            f"{paths[0].parent}: the table of {paths[0].name} claims {rows:,} rows, "
            f"more than the {MOST_ROWS:,} that are read; name a run with fewer"
        )
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    return {
        name: np.asarray(table[name].to_pylist())
        if pa.types.is_string(table.schema.field(name).type)
        else table[name].to_numpy()
        for name in table.column_names
    }
