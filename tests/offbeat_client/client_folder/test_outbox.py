import os
from pathlib import Path

import numpy as np
import pytest

from offbeat_client.client_folder.outbox import Kept, Outbox
from offbeat_client.errors import OffbeatError


class KilledError(BaseException):
    pass


@pytest.fixture
def kill_at(monkeypatch):
    """Return a function that makes the n-th change of the disk from now on a kill: all before it are done."""

    def arm(n):
        left = n

        def count():
            nonlocal left
            left -= 1
            if left < 0:
                raise KilledError

        for owner, name in ((Path, "replace"), (Path, "unlink"), (os, "fsync"), (os, "fdatasync")):
            real = getattr(owner, name)

            def wrapped(*arguments, real=real, **options):
                count()
                return real(*arguments, **options)

            monkeypatch.setattr(owner, name, wrapped)

    yield arm
    monkeypatch.undo()


def put(outbox, visit, memory=1.0, text=b"body"):
    return outbox.put(
        visit,
        lambda path: path.write_bytes(text),
        None if memory is None else np.full((6,), memory, np.float32),
        lambda path: {"bytes": path.stat().st_size},
    )


def test_an_update_comes_back(tmp_path, visit):
    put(Outbox(tmp_path), visit(lease_seconds=60.0))
    outbox = Outbox(tmp_path)
    pending = outbox.pending()
    assert (pending.visit, pending.version, pending.length, pending.lease_seconds) == (4, 12, 6, 60.0)
    assert pending.announcement == {"bytes": 4}
    assert outbox.body(4).read_bytes() == b"body"
    assert outbox.memory(12, 6) is None  # nothing has counted


def test_the_memory_changes_with_a_receipt_that_says_so(tmp_path, visit):
    outbox = Outbox(tmp_path)
    outbox.acknowledge(put(outbox, visit(number=4, version=12)), True, 1.5)
    assert outbox.pending() is None
    assert outbox.memory(12, 6).tolist() == [1.0] * 6
    outbox.acknowledge(put(outbox, visit(number=5, version=13), 2.0), False, None)
    assert outbox.memory(12, 6).tolist() == [1.0] * 6
    outbox.acknowledge(put(outbox, visit(number=6, version=14), 3.0), True, None)
    assert outbox.memory(14, 6).tolist() == [3.0] * 6
    assert outbox.kept() == Kept(14, "memory-6.safetensors", 1.5)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.json", "memory-6.safetensors"]


def test_a_memory_belongs_to_one_version(tmp_path, visit):
    outbox = Outbox(tmp_path)
    outbox.acknowledge(put(outbox, visit()), True, None)
    assert outbox.memory(None, 6) is None
    assert outbox.memory(11, 6) is None
    assert outbox.memory(12, 7) is None
    (tmp_path / "memory-4.safetensors").write_bytes(b"broken")
    assert outbox.memory(12, 6) is None


def test_an_update_without_memory_removes_the_old_one(tmp_path, visit):
    outbox = Outbox(tmp_path)
    outbox.acknowledge(put(outbox, visit()), True, None)
    outbox.acknowledge(put(outbox, visit(number=5, version=13), None), True, None)
    assert outbox.memory(13, 6) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.json"]


def test_a_dropped_update_leaves_the_memory(tmp_path, visit):
    outbox = Outbox(tmp_path)
    outbox.acknowledge(put(outbox, visit()), True, None)
    put(outbox, visit(number=5, version=13), 2.0)
    outbox.drop()
    assert outbox.pending() is None
    assert outbox.memory(12, 6).tolist() == [1.0] * 6
    assert not outbox.body(5).exists()


def test_after_a_kill_an_update_is_complete_or_absent(tmp_path, visit, kill_at, monkeypatch):
    outcomes = []
    for kill in range(100):
        folder = tmp_path / str(kill)
        folder.mkdir()
        kill_at(kill)
        try:
            put(Outbox(folder), visit())
        except KilledError:
            done = False
        else:
            done = True
        monkeypatch.undo()
        outbox = Outbox(folder)
        pending = outbox.pending()
        names = {path.name for path in folder.iterdir() if not path.name.endswith(".partial")}
        if pending is None:
            assert names == set()
        else:
            assert names == {"update-4", "memory-4.safetensors", "upload.json"}
            assert outbox.body(4).read_bytes() == b"body"
        outcomes.append(pending is not None)
        if done:
            break
    # Three files: content, name and folder of each; the last one's name is what counts.
    assert outcomes == sorted(outcomes)
    assert outcomes[-1] is True
    assert len(outcomes) >= 10


@pytest.mark.parametrize("counted", [True, False])
def test_after_a_kill_a_receipt_can_be_recorded_again(tmp_path, visit, kill_at, monkeypatch, counted):
    for kill in range(100):
        folder = tmp_path / str(kill)
        folder.mkdir()
        outbox = Outbox(folder)
        outbox.acknowledge(put(outbox, visit()), True, None)
        pending = put(outbox, visit(number=5, version=13), 2.0)
        kill_at(kill)
        try:
            outbox.acknowledge(pending, counted, None)
        except KilledError:
            done = False
        else:
            done = True
        monkeypatch.undo()
        outbox = Outbox(folder)
        if again := outbox.pending():
            assert again == pending
            assert outbox.body(5).exists()
            outbox.acknowledge(again, counted, None)
        memory = outbox.memory(13, 6) if counted else outbox.memory(12, 6)
        assert memory.tolist() == [2.0 if counted else 1.0] * 6
        assert len([path for path in folder.iterdir() if path.suffix == ".safetensors"]) == 1
        assert not outbox.body(5).exists()
        if done:
            break
    assert done
    assert kill >= 6


@pytest.mark.parametrize("name", ["upload.json", "kept.json"])
@pytest.mark.parametrize("content", ["", "{}x", '{"other": 1}'])
def test_a_broken_file_is_named(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(OffbeatError, match=rf"{name} is broken"):
        Outbox(tmp_path)
