import sqlite3
from contextlib import closing

import pytest
from offbeat_core.errors import OffbeatError
from offbeat_private.helper.helper import Helper
from offbeat_private.helper.helper_database import HelperDatabase
from offbeat_private.helper.helper_refusal import HelperRefusal

from tests.offbeat_private.helper.conftest import CLIENT_KEYS, enrol_clients, records_for


def test_what_was_opened_is_read_back(folder):
    with closing(Helper(folder)) as helper:
        helper.open(1, records_for(helper, {0: 4, 1: 5, 2: 6}))
        expected = helper._rules.opened
        with closing(HelperDatabase(folder, read_only=True)) as store:
            assert store.opened() == expected
            assert store.opened().histories[CLIENT_KEYS[1]] == (1, 4.0, 5, 5, 1)
            assert not store.opened().is_stopped
        helper.open(2, records_for(helper, {0: 5, 1: 6, 2: 7, 3: 1}))
        with closing(HelperDatabase(folder, read_only=True)) as store:
            assert store.batch_sizes() == [3, 4]


def test_the_models_of_a_run_are_kept_over_restarts_and_not_over_runs(folder):
    other = {"model": bytes([1] * 32)}
    with closing(Helper(folder)) as helper:
        helper.open(1, records_for(helper, {0: 0, 1: 0, 2: 0}))
    with closing(Helper(folder)) as helper:
        with pytest.raises(HelperRefusal, match="another model as version 0 than others"):
            helper.open(2, records_for(helper, {3: 0, 4: 0, 5: 0}, **other))
        helper.open(2, [*records_for(helper, {3: 0, 4: 0}), *records_for(helper, {5: 1}, **other)])
    with closing(HelperDatabase(folder, read_only=True)) as store:
        assert store.opened().models == {0: bytes(32), 1: bytes([1] * 32)}
    enrol_clients(folder)
    with closing(Helper(folder)) as helper:
        helper.open(1, records_for(helper, {0: 0, 1: 0, 2: 0}, **other))


def test_a_new_run_keeps_participations_and_begins_anew(folder):
    with closing(Helper(folder)) as helper:
        helper.open(1, records_for(helper, {0: 4, 1: 4, 7: 4}))
    enrol_clients(folder, clients=7)
    with closing(HelperDatabase(folder, read_only=True)) as store:
        opened = store.opened()
        assert (opened.batches, opened.heads) == ([], [])
        assert store.batch_sizes() == []
        assert opened.histories[CLIENT_KEYS[0]] == opened.histories[CLIENT_KEYS[7]] == (1, 4.0, -1, -1, 0)
        assert store.roster() == {key: f"client-{number}" for number, key in enumerate(CLIENT_KEYS[:7])}


def test_a_commit_waits_for_the_disk(folder):
    with closing(HelperDatabase(folder)) as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_database_that_cannot_be_used_is_one_line(folder, tmp_path):
    with closing(sqlite3.connect(folder / "helper.sqlite")) as database:
        database.execute("PRAGMA user_version = 99")
    with pytest.raises(OffbeatError, match=r"another version of Offbeat \(form 99"):
        HelperDatabase(folder)
    with pytest.raises(OffbeatError, match="offbeat-helper enrol"):
        HelperDatabase(tmp_path / "nothing")
    (tmp_path / "helper.sqlite").write_bytes(b"not a database" * 100)
    with pytest.raises(OffbeatError, match="cannot use"):
        HelperDatabase(tmp_path)
