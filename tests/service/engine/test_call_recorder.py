import math
from types import SimpleNamespace
from typing import ClassVar

import pytest

from offbeat.coordinator import Receipt, RecordedCall
from offbeat.service.engine.call_recorder import CallRecorder, UpdateFiles
from offbeat.service.engine.live_run import Alarm
from offbeat.service.store.call_records import DiscardedUpdate
from offbeat.service.store.client_tally import ClientTally
from offbeat.service.updates.update_body import BufferedUpdate, StoredUpdate


class LogWriter:
    number = 4

    def __init__(self):
        self.entries = []

    def enter(self, change, **belongings):
        self.number += 1
        self.entries.append((self.number, change, belongings))


class Coordinator:
    record = None

    class algorithm:  # noqa: N801
        version = 9

    def next_lapse(self):
        return math.inf

    class visits:  # noqa: N801
        slots: ClassVar = {0, 2}

        @staticmethod
        def receipt(client, visit):
            return Receipt(True, 4, False)

        @classmethod
        def has_slot(cls, client):
            return client in cls.slots


@pytest.fixture
def log_writer():
    return LogWriter()


@pytest.fixture
def coordinator():
    return Coordinator()


@pytest.fixture
def tally():
    return ClientTally()


@pytest.fixture
def calls(coordinator, log_writer, tally):
    history = SimpleNamespace(note=lambda call, coordinator: None)
    run = SimpleNamespace(coordinator=coordinator, alarm=Alarm(), history=history)
    return CallRecorder(run, log_writer, tally)


def receive(update):
    return RecordedCall("receive", {"now": 1.0, "client": 2, "visit": 0, "vector": update, "base": None})


def test_calls_get_consecutive_numbers_and_presence_is_not_logged(calls, coordinator, log_writer, caplog):
    with caplog.at_level("DEBUG", "offbeat.service"):
        coordinator.record(RecordedCall("present", {"now": 1.0, "client": 0}))
        coordinator.record(RecordedCall("assign", {"now": 1.0, "clients": [0]}))
        coordinator.record(RecordedCall("absent", {"now": 2.0, "client": 1}))
        coordinator.record(RecordedCall("drop", {"now": 3.0, "client": 0, "visit": 0}))
    assert [(number, change.name) for number, change, _ in log_writer.entries] == [(5, "assign"), (6, "drop")]
    assert [entry.fields for entry in caplog.records] == [
        {"version": 9, "now": 1.0, "clients": [0]},
        {"version": 9, "now": 3.0, "client": 0, "visit": 0},
    ]
    assert {entry.levelname for entry in caplog.records} == {"DEBUG"}  # an operator does not read one for each


def test_a_small_update_is_in_its_row(calls, coordinator, log_writer):
    coordinator.record(receive(BufferedUpdate(bytearray(b"abc"), 1, None, "digest")))
    ((_, change, belongings),) = log_writer.entries
    assert belongings == {"body": b"abc", "digest": "digest"}
    assert change.arguments == {"now": 1.0, "client": 2, "visit": 0, "outcome": [True, 4]}
    assert calls.stored_bytes == 3


def test_of_a_large_update_the_file_is_logged_and_kept(calls, coordinator, log_writer, tmp_path):
    coordinator.record(receive(StoredUpdate(tmp_path / "2-0-1", 100, 1, None, "digest")))
    assert log_writer.entries[0][2] == {"blob": "2-0-1", "digest": "digest"}
    assert calls.stored_bytes == 100
    assert tmp_path / "2-0-1" in calls.update_files


def test_of_an_unused_update_only_the_digest_is_logged(calls, coordinator, log_writer):
    coordinator.record(receive(DiscardedUpdate("digest")))
    assert log_writer.entries[0][2] == {"digest": "digest"}
    assert calls.stored_bytes == 0


def test_the_outcomes_of_visits_are_logged_and_counted(calls, coordinator, log_writer, tally):
    coordinator.record(RecordedCall("assign", {"now": 1.0, "clients": [0, 1, 2]}))
    coordinator.record(RecordedCall("lapse", {"now": 2.0}))
    coordinator.record(receive(DiscardedUpdate("digest")))
    outcomes = [change.arguments.get("outcome") for _, change, _ in log_writer.entries]
    assert outcomes == [None, [1], [True, 4]]
    assert (tally[1].lost, tally[2].counted, tally[2].staleness_sum) == (1, 1, 4)
    assert tally.working() == [0]
    assert calls.silent == {1}


def test_a_file_is_forgotten_without_later_records_and_updates_in_memory(tmp_path):
    files = UpdateFiles()
    shared, own = tmp_path / "0-0-1", tmp_path / "0-0-2"
    first, second = (StoredUpdate(shared, 8, 2, None, digest) for digest in "ab")
    files.add(3, first)
    files.add(5, second)
    files.add(4, StoredUpdate(own, 8, 2, None, ""))
    assert shared in files
    assert own in files
    assert files.forget(3) == []
    assert files.forget(4) == [own]
    assert own not in files
    assert files.forget(5) == []  # both updates are in memory
    del first
    assert files.forget(5) == []
    del second
    assert files.forget(4) == []  # row 5 needs it
    assert files.forget(5) == [shared]
    assert files.forget(5) == []
