"""Failures of the disk: some pass, others end the server."""

import errno
import os
from pathlib import Path

import pytest
import torch
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import FedBuff
from offbeat.service.store.disk import Disk, Reserve, UnreachableFilesError, is_temporary
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.updates.update_body import BufferedUpdate
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import kind_of, until

ONES = torch.ones(LENGTH)
FULL, QUOTA, DESCRIPTORS, BROKEN = (
    OSError(number, os.strerror(number)) for number in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO)
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "reserve"


@pytest.fixture
def failures():
    return []


@pytest.fixture
def disk(path, failures):
    return Disk(path, failures.append)


@pytest.fixture
def working(tmp_path):
    """A server that makes a version of each update, and a client with a visit."""
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=1)) as server:
        peer = server.enrol()
        yield server, peer, peer.check_in()


def failing_once(monkeypatch, holder, name, error):
    original, left = getattr(holder, name), [error]

    def fails(*arguments, **more):
        if left:
            raise left.pop()
        return original(*arguments, **more)

    monkeypatch.setattr(holder, name, fails)


@pytest.mark.parametrize("error", [FULL, QUOTA])
def test_a_full_disk_releases_its_reserve_and_takes_nothing_in_until_there_is_room(error, disk, failures, path):
    assert disk.keep_reserve(100)
    assert disk.problem is None
    assert disk.refusal(error).kind == "no-space"
    assert disk.problem == error.strerror
    assert not path.exists()
    assert not disk.mark_full("still")  # there is nothing left to be released
    assert disk.keep_reserve(100)
    assert disk.problem is None
    assert path.exists()
    assert disk.mark_full("again")
    assert is_temporary(error)
    assert failures == []


def test_a_lack_of_descriptors_passes_and_says_nothing_of_the_disk(disk, failures):
    refusal = disk.refusal(DESCRIPTORS)
    assert (refusal.kind, refusal.headers["Retry-After"]) == ("busy", "5")
    assert disk.problem is None
    assert failures == []


def test_any_other_failure_ends_the_server(disk, failures):
    assert disk.refusal(BROKEN).kind == "stopping"
    assert failures == [BROKEN]
    assert not is_temporary(BROKEN)
    assert not is_temporary(OSError("a file is too short"))


def test_a_reserve_is_held_grown_and_released(path):
    path.write_bytes(b"an earlier server's")
    reserve = Reserve(path)
    assert not path.exists()
    for size, held in ((5000, 5000), (100, 5000), (9000, 9000)):
        assert reserve.hold(size)
        assert path.stat().st_size == held
        assert path.stat().st_blocks * 512 >= held  # it does take the space
    assert reserve.release()
    assert not path.exists()
    assert not reserve.release()
    assert reserve.hold(10)


def test_without_fallocate_a_reserve_takes_the_space_too(path, monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate")
    assert Reserve(path).hold(2**20 + 5)
    assert path.stat().st_size == 2**20 + 5
    assert path.stat().st_blocks * 512 >= 2**20 + 5


def test_a_reserve_that_does_not_fit_is_not_held(path, monkeypatch):
    reserve = Reserve(path)
    assert reserve.hold(10)
    failing_once(monkeypatch, os, "posix_fallocate", FULL)
    assert not reserve.hold(20)
    assert not path.exists()
    assert reserve.hold(10)
    assert path.stat().st_size == 10


def test_an_update_that_cannot_be_read_ends_the_server_in_one_line(tmp_path, monkeypatch):
    def meet_it():
        with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=1)) as server:
            peer = server.enrol()
            visit = peer.check_in()
            failing_once(monkeypatch, BufferedUpdate, "resolve", BROKEN)
            assert peer.put(visit, body_of(ONES)).status_code == 200
            assert kind_of(peer.http.post("/v1/checkin", json={}), 503) == "stopping"
            until(lambda: not server.service.is_ready)

    with pytest.raises(OffbeatError, match="disk cannot be used: Input/output error"):
        meet_it()
    with running(tmp_path / "server") as server:
        assert server.service.engine.coordinator.statistics.counted == 1


@pytest.mark.parametrize(("holder", "name"), [(BufferedUpdate, "resolve"), (ModelFiles, "write")])
def test_a_version_for_which_a_descriptor_is_missing_is_made_later(holder, name, working, monkeypatch):
    _, peer, visit = working
    assert peer.put(visit, body_of(ONES)).status_code == 200
    failing_once(monkeypatch, holder, name, DESCRIPTORS)
    assert kind_of(peer.http.post("/v1/checkin", json={}), 503) == "busy"
    ready = peer.http.get("/readyz")
    assert ready.status_code == 503
    assert "version 1" in ready.text
    assert peer.check_in()["version"] == 1
    assert peer.http.get("/readyz").text == "ok\n"


def test_a_full_disk_shows_in_readyz_until_the_reserve_is_back(working, monkeypatch):
    server, peer, visit = working
    assert (server.folder / "reserve").exists()
    failing_once(monkeypatch, os, "pwritev", FULL)
    body = body_of(ONES)
    assert kind_of(peer.put(visit, body[:10], head=peer.head(visit, body)), 503) == "no-space"  # as of a large one
    ready = peer.http.get("/readyz")
    assert (ready.status_code, ready.text) == (503, "No space left on device\n")
    until(lambda: peer.http.get("/readyz").status_code == 200)
    assert (server.folder / "reserve").exists()
    assert peer.put(visit, body_of(ONES)).json()["receipt"]["counted"]


def test_a_folder_that_cannot_be_listed_for_lack_of_a_descriptor_is_listed_later(working, monkeypatch):
    _, peer, _ = working
    failing_once(monkeypatch, Path, "iterdir", OSError(errno.EMFILE, os.strerror(errno.EMFILE), "models"))
    assert kind_of(peer.http.get("/v1/models/latest"), 503) == "busy"
    assert peer.http.get("/v1/models/latest").status_code == 307


def test_a_store_that_cannot_be_reached_is_named_in_the_log_only(disk, failures, caplog):
    refused = disk.refusal(UnreachableFilesError("s3://secret: 503"))
    lines = [vars(record)["fields"]["problem"] for record in caplog.records if record.msg == "blobs_unavailable"]
    assert lines == ["s3://secret: 503"]
    assert refused.kind == "busy"
    assert "secret" not in refused.detail
    assert failures == []
