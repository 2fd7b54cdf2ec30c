"""A folder of an earlier form is refused by every command in one line, and not changed."""

import sqlite3
from contextlib import closing

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.service.audit.verification import entries, verify
from offbeat.service.log.open_log import open_log, sqlite_url
from offbeat.service.server import admin, stopped_server
from offbeat.service.store.backup import back_up
from tests.service.conftest import running

BEFORE_RUNS = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE log (number INTEGER PRIMARY KEY, name TEXT NOT NULL, arguments TEXT NOT NULL, file TEXT, digest TEXT);
CREATE TABLE audit (number INTEGER PRIMARY KEY, entry TEXT NOT NULL, digest TEXT NOT NULL);
"""
ANOTHER_FORM = """
CREATE TABLE runs (name TEXT PRIMARY KEY, run TEXT NOT NULL, form INTEGER NOT NULL);
INSERT INTO runs VALUES ('', 'a', 5);
CREATE TABLE log (number INTEGER PRIMARY KEY, news TEXT);
"""


def serve(folder):
    with running(folder):
        raise AssertionError("it started")


@pytest.fixture(params=[BEFORE_RUNS, ANOTHER_FORM], ids=["before runs", "another form"])
def folder(request, tmp_path):
    folder = tmp_path / "server"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "checkpoints" / "3.safetensors").touch()
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(request.param)
    return folder


@pytest.mark.parametrize(
    "use",
    [
        serve,
        stopped_server.status,
        stopped_server.clients,
        verify,
        lambda folder: list(entries(folder)),
        admin.runs,
        lambda folder: back_up(folder, folder.with_name("copy")),
    ],
    ids=["serve", "status", "clients", "verify", "entries", "runs", "back up"],
)
def test_a_command_refuses_another_form(use, folder):
    before = (folder / "offbeat.sqlite").read_bytes()
    with pytest.raises(
        OffbeatError, match=r"holds a run of another version of Offbeat \(form [25], this one reads 4\)"
    ):
        use(folder)
    assert (folder / "offbeat.sqlite").read_bytes() == before


@pytest.mark.parametrize(
    "made", ["", "CREATE TABLE runs (name TEXT PRIMARY KEY, run TEXT NOT NULL, form INTEGER NOT NULL)"]
)
def test_a_first_start_that_was_killed_is_no_other_form(made, tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database:
        database.executescript(made)
    for use in (
        stopped_server.status,
        stopped_server.clients,
        verify,
        lambda folder: list(entries(folder)),
        admin.runs,
    ):
        with pytest.raises(OffbeatError, match="no such table: log"):
            use(folder)
    with running(folder) as server:
        server.enrol()
    assert len(stopped_server.clients(folder)) == 1


def test_a_first_start_that_was_killed_before_it_began_the_run_is_read(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    open_log(sqlite_url(folder / "offbeat.sqlite")).close()
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database, database:
        database.execute("DELETE FROM runs")
    assert stopped_server.clients(folder) == []
    assert stopped_server.status(folder)["enrolled"] == 0
    with pytest.raises(OffbeatError, match="has no entries"):
        verify(folder)
    assert [run.algorithm for run in admin.runs(folder)] == ["?"]
