"""Growing tables: closed Parquet files that are joined at the end."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.files import durable_file

MAX_ROWS = 10**8  # that are read: a small file can claim far more than memory holds

_ROWS_A_GROUP = 1 << 17

Columns = Mapping[str, NDArray[Any]]


class ChunkedTable:
    """A table in chunks, the files ``NAME-00000.parquet`` and so on.

    Of existing chunks it keeps so many as ``chunks`` says, and removes later ones.
    """

    def __init__(self, folder: Path, name: str, schema: pa.Schema, chunks: int = 0) -> None:
        self._folder = folder
        self._name = name
        self._schema = schema
        self._rows: list[Sequence[Any]] = []
        self.chunks = chunks
        for path in chunk_paths(folder, name)[chunks:]:
            path.unlink()

    def __len__(self) -> int:
        """Return the number of rows in memory, which are not in a chunk yet."""
        return len(self._rows)

    def add(self, row: Sequence[Any]) -> None:
        """Add a row, its values in the order of the schema."""
        self._rows.append(row)

    def close_chunk(self) -> None:
        """Write the rows in memory as a chunk, if there are any."""
        if not self._rows:
            return
        columns = dict(zip(self._schema.names, zip(*self._rows, strict=True), strict=True))
        path = self._folder / f"{self._name}-{self.chunks:05}.parquet"
        with durable_file(path) as file:
            pq.write_table(pa.table({name: list(values) for name, values in columns.items()}, self._schema), file)
        self._rows.clear()
        self.chunks += 1

    def join(self, path: Path) -> None:
        """Write all chunks as one file, independent of how the rows were divided."""
        with pq.ParquetWriter(path, self._schema) as writer:
            waiting = self._schema.empty_table()
            for chunk in chunk_paths(self._folder, self._name):
                waiting = pa.concat_tables([waiting, pq.read_table(chunk, schema=self._schema)])
                while waiting.num_rows >= _ROWS_A_GROUP:
                    writer.write_table(waiting.slice(0, _ROWS_A_GROUP).combine_chunks())
                    waiting = waiting.slice(_ROWS_A_GROUP)
            if waiting.num_rows:
                writer.write_table(waiting.combine_chunks())


def chunk_paths(folder: Path, name: str) -> list[Path]:
    """Return the closed chunks of a table, in order."""
    # By the length of the name first: 100,000 comes after 99,999.
    return sorted(folder.glob(f"{name}-[0-9]*.parquet"), key=lambda path: (len(path.name), path.name))


def read_columns(paths: Sequence[Path]) -> Columns:
    """Return a table's columns from files that claim at most ``MAX_ROWS``."""
    rows = sum(pq.read_metadata(path).num_rows for path in paths)
    if rows > MAX_ROWS:
        raise OffbeatError(
            f"{paths[0].parent}: the table of {paths[0].name} claims {rows:,} rows, more than the limit of "
            f"{MAX_ROWS:,}; name a smaller run"
        )
    table = pa.concat_tables([pq.read_table(path) for path in paths])
    return {
        name: np.asarray(table[name].to_pylist())
        if pa.types.is_string(table.schema.field(name).type)
        else table[name].to_numpy()
        for name in table.column_names
    }
