import sqlite3
from contextlib import closing

import pytest
import sqlalchemy as sa
from offbeat_core.errors import OffbeatError

from offbeat.service.store import database
from offbeat.service.store.database import SCHEMA, LogRecord, log, numbers_of, open_database


def test_a_new_database_waits_for_the_disk_and_can_be_opened_again(tmp_path):
    for _ in range(2):
        opened = open_database(tmp_path / "x.sqlite")
        with opened.connect() as connection:
            pragmas = [
                connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "synchronous")
            ]
            assert pragmas == ["wal", 2]
            assert connection.exec_driver_sql("PRAGMA user_version").scalar() == SCHEMA
        opened.dispose()


def test_a_record_is_a_row(tmp_path):
    record = LogRecord(1, "receive", {"client": 3}, "segment-1", 8, 40, "digest", [True, 2])
    opened = open_database(tmp_path / "x.sqlite")
    with opened.begin() as connection:
        connection.execute(sa.insert(log), [record.row()])
        (row,) = connection.execute(sa.select(log)).all()
    opened.dispose()
    assert LogRecord.of_row(row._mapping) == record


def test_a_full_disk_sends_the_operator_to_free_space(tmp_path, monkeypatch):
    def prepare(connection, _):
        connection.execute("PRAGMA max_page_count = 1")

    monkeypatch.setattr(database, "_prepare", prepare)
    with pytest.raises(OffbeatError, match=r"database or disk is full: free space there, outside the folder$"):
        open_database(tmp_path / "x.sqlite")


def test_a_database_of_another_version_is_refused(tmp_path):
    with closing(sqlite3.connect(tmp_path / "x.sqlite")) as database:
        database.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    with pytest.raises(OffbeatError, match="holds a run of another version"):
        open_database(tmp_path / "x.sqlite")


def test_a_broken_database_is_refused(tmp_path):
    (tmp_path / "x.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(OffbeatError, match=r"cannot use .*x\.sqlite"):
        open_database(tmp_path / "x.sqlite")


def test_only_files_named_by_a_number_count(tmp_path):
    for name in ("0.safetensors", "12.safetensors", "notes.safetensors", ".3.pending", "4.txt", "-1.safetensors"):
        (tmp_path / name).touch()
    assert sorted(numbers_of(tmp_path)) == [0, 12]


def test_a_missing_folder_holds_nothing(tmp_path):
    assert numbers_of(tmp_path / "missing") == []
