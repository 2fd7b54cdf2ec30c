import pytest
import sqlalchemy as sa

from offbeat.errors import OffbeatError
from offbeat.service.store.database import LogRecord, log
from offbeat.service.store.store import Store


def test_one_server_uses_a_folder_at_a_time(tmp_path):
    store = Store(tmp_path / "a" / "b")
    assert {path.name for path in store.folder.iterdir()} >= {"checkpoints", "models", "updates", "partial"}
    with pytest.raises(OffbeatError, match="in use by another server"):
        Store(tmp_path / "a" / "b")
    store.close()
    Store(tmp_path / "a" / "b").close()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OffbeatError, match=r"cannot use the folder .*file"):
        Store(tmp_path / "file")


def test_records_are_read_in_order(tmp_path):
    records = [LogRecord(number, "drop", {"client": number}) for number in (1, 2, 3)]
    store = Store(tmp_path)
    assert store.last_number() == 0
    assert store.get_meta("run") is None
    with store.database.begin() as connection:
        connection.execute(sa.insert(log), [record.row() for record in reversed(records)])
    assert list(store.records(0)) == records
    assert list(store.records(2)) == records[2:]
    assert store.last_number() == 3
    with store.database.begin() as connection:
        connection.execute(sa.update(log).values(arguments="{"))
    with pytest.raises(OffbeatError, match=r"is broken .*restore a backup"):
        list(store.records(0))
    store.close()
