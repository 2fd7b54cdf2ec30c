import math
import stat
from dataclasses import replace

import numpy as np
import pytest
from offbeat_client.client_folder.outbox import Kept, Outbox
from offbeat_core.errors import OffbeatError

from tests.offbeat_client.conftest import KilledError

DELTA = {"terms": "0a", "divisor": 2.0, "model": "0b"}
SHARE = {"version": 12, "share": "c2hhcmU="}


def put(outbox, visit, memory=1.0, state=None):
    return outbox.put(
        visit,
        lambda path: path.write_bytes(b"body"),
        None if memory is None else np.full((6,), memory, np.float32),
        lambda path: {"bytes": path.stat().st_size},
        state,
    )


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_an_update_comes_back(tmp_path, visit):
    put(Outbox(tmp_path), visit(lease_seconds=60.0))
    outbox = Outbox(tmp_path)
    pending = outbox.pending()
    assert (pending.visit, pending.version, pending.length, pending.lease_seconds) == (4, 12, 6, 60.0)
    assert pending.announcement == {"bytes": 4}
    assert outbox.body(4).read_bytes() == b"body"
    assert outbox.memory(12, 6) is None  # nothing has counted


def test_others_cannot_read_updates_also_in_a_folder_that_they_can_enter(tmp_path, visit):
    tmp_path.chmod(0o755)
    outbox = Outbox(tmp_path)
    put(outbox, visit())
    outbox.put_delta(visit(number=5), np.ones(6, np.float32), {"terms": "0a" * 32, "divisor": 1.0, "model": "0b" * 32})
    assert names(tmp_path) == ["delta-5", "memory-4.safetensors", "update-4", "upload.json"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_the_memory_changes_with_a_receipt_that_says_so(tmp_path, visit):
    outbox = Outbox(tmp_path)
    outbox.acknowledge(put(outbox, visit(number=4, version=12)), True, 1.5)
    assert outbox.pending() is None
    assert outbox.memory(12, 6).tolist() == [1.0] * 6
    outbox.acknowledge(put(outbox, visit(number=5, version=13), 2.0), False, None)
    assert outbox.memory(12, 6).tolist() == [1.0] * 6
    outbox.acknowledge(put(outbox, visit(number=6, version=14), 3.0), True, None)
    assert outbox.kept() == Kept(14, "memory-6.safetensors", 1.5)
    put(outbox, visit(number=7, version=15), 4.0)
    outbox.drop()
    assert outbox.pending() is None
    assert outbox.memory(14, 6).tolist() == [3.0] * 6
    assert names(tmp_path) == ["kept.json", "memory-6.safetensors"]
    outbox.acknowledge(put(outbox, visit(number=8, version=16), None), True, None)
    assert outbox.memory(16, 6) is None
    assert names(tmp_path) == ["kept.json"]


def test_a_memory_belongs_to_one_version(tmp_path, visit):
    outbox = Outbox(tmp_path)
    outbox.acknowledge(put(outbox, visit()), True, None)
    assert outbox.memory(None, 6) is None
    assert outbox.memory(11, 6) is None
    assert outbox.memory(12, 7) is None
    assert outbox.memory(12, 6, np.int32) is None
    assert outbox.memory(12, 6) is not None
    (tmp_path / "memory-4.safetensors").write_bytes(b"broken")
    assert outbox.memory(12, 6) is None


def test_the_state_changes_with_a_counted_update_that_has_one(tmp_path, visit):
    outbox = Outbox(tmp_path)
    assert outbox.state() is None
    outbox.acknowledge(put(outbox, visit(number=4), None, b"four"), True, None)
    assert Outbox(tmp_path).state() == b"four"
    for number, state, counted in ((5, b"five", False), (6, None, True), (7, b"seven", None)):
        outbox.acknowledge(put(outbox, visit(number=number), None, state), counted, None)
        assert outbox.state() == b"four"
    put(outbox, visit(number=8), None, b"eight")
    outbox.drop()
    assert names(tmp_path) == ["kept.json", "state-4"]
    outbox.acknowledge(outbox.put_delta(visit(number=9), np.zeros(6, np.float32), DELTA, b"nine"), True, None)
    assert outbox.state() == b"nine"
    assert names(tmp_path) == ["kept.json", "state-9"]
    (tmp_path / "state-9").unlink()
    with pytest.raises(OffbeatError, match=r"has lost state-9, the state of the client: take another folder"):
        outbox.state()


@pytest.fixture
def after_each_kill(tmp_path, kill_at):
    """Return a generator of outboxes after ``act`` was killed at its first, second, … change; in the end it was not."""

    def outboxes(prepare, act):
        for kill in range(100):
            folder = tmp_path / str(kill)
            folder.mkdir()
            prepared = prepare(Outbox(folder))
            kill_at(kill)
            try:
                act(Outbox(folder), prepared)
                return
            except KilledError:
                kill_at(math.inf)
                yield folder, prepared
            finally:
                kill_at(math.inf)

    return outboxes


def test_after_a_kill_an_update_is_complete_or_absent(visit, after_each_kill):
    outcomes = []
    for folder, _ in after_each_kill(lambda outbox: None, lambda outbox, _: put(outbox, visit())):
        outbox = Outbox(folder)
        whole = [name for name in names(folder) if not name.endswith(".partial")]
        if outbox.pending() is None:
            assert whole == []
        else:
            assert whole == ["memory-4.safetensors", "update-4", "upload.json"]
            assert outbox.body(4).read_bytes() == b"body"
        outcomes.append(outbox.pending() is not None)
    # Three files: content, name and folder of each; the last one's name is what counts.
    assert outcomes == sorted(outcomes)
    assert outcomes[-1] is True
    assert len(outcomes) >= 9


@pytest.mark.parametrize("counted", [True, False])
def test_after_a_kill_a_receipt_can_be_recorded_again(visit, after_each_kill, counted):
    def prepare(outbox):
        outbox.acknowledge(put(outbox, visit(), state=b"old"), True, None)
        return put(outbox, visit(number=5, version=13), 2.0, state=b"new")

    kills = 0
    for folder, pending in after_each_kill(prepare, lambda outbox, pending: outbox.acknowledge(pending, counted, None)):
        outbox = Outbox(folder)
        if again := outbox.pending():
            assert again == pending
            assert outbox.body(5).exists()
            outbox.acknowledge(again, counted, None)
        memory = outbox.memory(13, 6) if counted else outbox.memory(12, 6)
        assert memory.tolist() == [2.0 if counted else 1.0] * 6
        assert outbox.state() == (b"new" if counted else b"old")
        assert len([path for path in folder.iterdir() if path.suffix == ".safetensors"]) == 1
        assert not outbox.body(5).exists()
        kills += 1
    assert kills >= 6


def test_a_private_update_is_a_delta_then_a_share(tmp_path, visit):
    vector, masked = np.arange(6, dtype=np.float32), np.arange(6, dtype=np.uint32) << 29
    Outbox(tmp_path).put_delta(visit(lease_seconds=60.0), vector, DELTA)
    pending = Outbox(tmp_path).pending()
    assert (pending.visit, pending.version, pending.lease_seconds, pending.announcement) == (4, 12, 60.0, None)
    assert pending.delta == DELTA
    assert not Outbox(tmp_path).body(4).exists()
    Outbox(tmp_path).put_share(pending, masked, SHARE)
    outbox = Outbox(tmp_path)
    pending = outbox.pending()
    assert (pending.announcement, pending.delta) == (SHARE, DELTA)
    assert np.fromfile(outbox.body(4), "<u4").tolist() == masked.tolist()
    assert outbox.delta(pending).tolist() == vector.tolist()
    assert outbox.drop_share(pending) == outbox.pending() == replace(pending, announcement=None)
    assert outbox.delta(pending).tolist() == vector.tolist()
    outbox.acknowledge(pending, True, None)
    assert names(tmp_path) == ["kept.json"]
    assert outbox.kept().since == 12


def share(outbox, visit, number, version, since, counted=True):
    """Keep a share of a difference, and its receipt; the memory is the visit's number."""
    delta = {**DELTA, "since": since}
    pending = outbox.put_delta(visit(number=number, version=version), np.zeros(6, np.float32), delta)
    pending = outbox.put_share(pending, np.zeros(6, np.uint32), SHARE, np.full(6, number, np.int32))
    outbox.acknowledge(pending, counted, None)


def remembered(outbox, since):
    memory = outbox.memory(since, 6, np.int32)
    return None if memory is None else memory.tolist()


def test_of_differences_the_last_two_memories_are_kept(tmp_path, visit):
    outbox = Outbox(tmp_path)
    share(outbox, visit, 0, 10, None)
    assert (remembered(outbox, 10), remembered(outbox, None)) == ([0] * 6, None)
    share(outbox, visit, 1, 12, 10)
    share(outbox, visit, 2, 14, 12)
    found = [remembered(Outbox(tmp_path), since) for since in (10, 12, 14)]
    assert found == [None, [1] * 6, [2] * 6]
    share(outbox, visit, 3, 16, 12)  # the sum with visit 2 could not be opened
    found = [remembered(Outbox(tmp_path), since) for since in (12, 14, 16)]
    assert found == [[1] * 6, None, [3] * 6]
    share(outbox, visit, 4, 18, 16, counted=False)
    assert [remembered(outbox, since) for since in (12, 16, 18)] == [[1] * 6, [3] * 6, None]
    assert names(tmp_path) == ["kept.json", "memory-1.safetensors", "memory-3.safetensors"]
