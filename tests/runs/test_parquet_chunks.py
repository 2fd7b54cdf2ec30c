import itertools
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.runs import parquet_chunks
from offbeat.runs.parquet_chunks import ChunkedTable, chunk_paths, read_columns

SCHEMA = pa.schema([("number", pa.int64()), ("maybe", pa.int64()), ("value", pa.float64()), ("word", pa.string())])

ROWS = st.lists(
    st.tuples(
        st.integers(-5, 5), st.none() | st.integers(0, 3), st.floats(allow_nan=False), st.sampled_from(["a", "bb", ""])
    ),
    max_size=30,
)


@pytest.fixture
def small_groups(monkeypatch):
    monkeypatch.setattr(parquet_chunks, "_ROWS_A_GROUP", 4)


def joined(folder, rows, sizes):
    """Return the file that comes of the rows if a part is closed after so many, and so many more, and at the end."""
    folder.mkdir()
    table = ChunkedTable(folder, "events", SCHEMA)
    ends = set(itertools.accumulate(sizes))
    for count, row in enumerate(rows, start=1):
        table.add(row)
        if count in ends:
            table.close_chunk()
    table.close_chunk()
    table.join(folder / "whole.parquet")
    return (folder / "whole.parquet").read_bytes()


@pytest.mark.usefixtures("small_groups")
class TestJoin:
    @given(rows=ROWS, one=st.lists(st.integers(1, 7)), other=st.lists(st.integers(1, 7)))
    def test_the_file_is_the_same_however_the_rows_were_divided(self, tmp_path_factory, rows, one, other):
        folder = tmp_path_factory.mktemp("parts")
        assert joined(folder / "one", rows, one) == joined(folder / "other", rows, other)
        assert [tuple(row.values()) for row in pq.read_table(folder / "one" / "whole.parquet").to_pylist()] == rows

    @pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 8, 9, 12])
    def test_a_group_has_so_many_rows(self, count, tmp_path):
        joined(tmp_path / "x", [(i, None, 0.5, "a") for i in range(count)], [3, 3, 3])
        path = tmp_path / "x" / "whole.parquet"
        assert pq.read_schema(path).remove_metadata() == SCHEMA
        file = pq.ParquetFile(path).metadata
        groups = [file.row_group(group).num_rows for group in range(file.num_row_groups)]
        assert groups == [4] * (count // 4) + [count % 4] * (count % 4 > 0)


class TestChunks:
    @pytest.fixture
    def table(self, tmp_path):
        return lambda number=0: ChunkedTable(tmp_path, "events", SCHEMA, number)

    def test_a_chunk_holds_the_rows_since_the_last(self, table, tmp_path):
        events = table()
        events.add((1, None, 0.5, "a"))
        events.add((2, 3, 1.5, "b"))
        assert len(events) == 2
        events.close_chunk()
        assert (len(events), events.chunks) == (0, 1)
        events.add((3, 4, 2.5, "c"))
        events.close_chunk()
        assert [path.name for path in chunk_paths(tmp_path, "events")] == [
            "events-00000.parquet", "events-00001.parquet",
        ]  # fmt: skip
        numbers = [pq.read_table(path)["number"].to_pylist() for path in chunk_paths(tmp_path, "events")]
        assert numbers == [[1, 2], [3]]

    def test_no_rows_make_no_part(self, table, tmp_path):
        events = table()
        events.close_chunk()
        assert events.chunks == 0
        assert list(tmp_path.iterdir()) == []

    def test_continues_after_the_chunks_that_count(self, table, tmp_path):
        events = table()
        for number in range(4):
            events.add((number, None, 0.0, "a"))
            events.close_chunk()
        (tmp_path / "history-00000.parquet").touch()
        again = table(2)
        assert len(chunk_paths(tmp_path, "events")) == 2
        again.add((7, None, 0.0, "a"))
        again.close_chunk()
        again.join(tmp_path / "whole.parquet")
        assert pq.read_table(tmp_path / "whole.parquet")["number"].to_pylist() == [0, 1, 7]
        assert (tmp_path / "history-00000.parquet").exists()

    def test_a_partial_file_of_a_kill_is_ignored(self, table, tmp_path):
        (tmp_path / ".events-00000.parquet.partial").write_bytes(b"PAR1 half")
        events = table()
        assert chunk_paths(tmp_path, "events") == []
        events.add((1, None, 0.0, "a"))
        events.close_chunk()
        assert read_columns(chunk_paths(tmp_path, "events"))["number"].tolist() == [1]

    def test_a_chunk_that_cannot_be_written_keeps_its_rows(self, table, tmp_path, monkeypatch):
        def fail(*_):
            raise OSError("no space")

        events = table()
        events.add((1, None, 0.0, "a"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail, raising=False)
            with pytest.raises(OSError, match="no space"):
                events.close_chunk()
        assert chunk_paths(tmp_path, "events") == []
        assert (len(events), events.chunks) == (1, 0)

    def test_are_in_order_also_if_they_are_very_many(self, tmp_path):
        for number in (99_999, 100_000, 2):
            (tmp_path / f"events-{number:05}.parquet").touch()
        assert [path.stem for path in chunk_paths(tmp_path, "events")] == [
            "events-00002", "events-99999", "events-100000",
        ]  # fmt: skip


def test_a_table_that_claims_too_many_rows_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_chunks, "MAX_ROWS", 4)
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, rows in zip(paths, (4, 1), strict=True):
        pq.write_table(pa.table({"a": range(rows)}), path)
    assert len(read_columns(paths[:1])["a"]) == 4

    def never(*_):
        raise AssertionError("read before it was looked at")

    monkeypatch.setattr(pq, "read_table", never)
    with pytest.raises(OffbeatError, match=r"the table of a\.parquet claims 5 rows, more than the limit of 4"):
        read_columns(paths)


def test_columns_of_several_files_are_one_table(tmp_path):
    for number, rows in enumerate([{"a": [1, 2], "b": ["x", "y"], "c": [None, 2]}, {"a": [3], "b": ["z"], "c": [3]}]):
        pq.write_table(pa.table(rows), tmp_path / f"{number}.parquet")
    columns = read_columns([tmp_path / "0.parquet", tmp_path / "1.parquet"])
    assert columns["a"].tolist() == [1, 2, 3]
    assert columns["b"].tolist() == ["x", "y", "z"]
    assert np.isnan(columns["c"][0])
    assert columns["c"][1:].tolist() == [2, 3]
