"""Failures of the disk: some pass, others end the server."""

import errno
import os

import pytest
import torch

from offbeat.algorithms import FedBuff
from offbeat.errors import OffbeatError
from offbeat.service.store.disk import Disk, is_temporary
from offbeat.service.store.model_files import ModelFiles
from offbeat.service.store.reserve_file import Reserve
from offbeat.service.updates.update_body import StoredUpdate
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import kind_of, until

ONES = torch.ones(LENGTH)
FULL, QUOTA, DESCRIPTORS, BROKEN = (
    OSError(number, os.strerror(number)) for number in (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EIO)
)


@pytest.fixture
def failures():
    return []


@pytest.fixture
def disk(tmp_path, failures):
    return Disk(Reserve(tmp_path / "reserve"), failures.append)


@pytest.mark.parametrize("error", [FULL, QUOTA])
def test_a_full_disk_releases_its_reserve_and_takes_nothing_in_until_there_is_room(error, disk, failures, tmp_path):
    assert disk.keep_reserve(100)
    assert disk.problem is None
    assert disk.refusal(error).kind == "no-space"
    assert disk.problem == error.strerror
    assert not (tmp_path / "reserve").exists()
    assert disk.keep_reserve(100)
    assert disk.problem is None
    assert (tmp_path / "reserve").exists()
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


def failing_once(monkeypatch, holder, name, error):
    original, left = getattr(holder, name), [error]

    def fails(*arguments, **more):
        if left:
            raise left.pop()
        return original(*arguments, **more)

    monkeypatch.setattr(holder, name, fails)


def one_version_a_visit():
    return FedBuff(buffer_size=1, concurrency=1)


def test_an_update_that_cannot_be_read_ends_the_server_in_one_line(tmp_path, monkeypatch):
    def meet_it():
        with running(tmp_path / "server", one_version_a_visit) as server:
            peer = server.enrol()
            visit = peer.check_in()
            failing_once(monkeypatch, StoredUpdate, "resolve", BROKEN)
            assert peer.put(visit, body_of(ONES)).status_code == 200
            assert kind_of(peer.http.post("/v1/checkin", json={}), 503) == "stopping"
            until(lambda: not server.service.is_ready)

    with pytest.raises(OffbeatError, match="disk cannot be used: Input/output error") as caught:
        meet_it()
    assert "\n" not in str(caught.value)
    with running(tmp_path / "server", one_version_a_visit) as server:
        assert server.service.engine.coordinator.statistics.counted == 1


@pytest.mark.parametrize("holder", [StoredUpdate, ModelFiles], ids=lambda holder: holder.__name__)
def test_a_version_for_which_a_descriptor_is_missing_is_made_later(holder, tmp_path, monkeypatch):
    name = {StoredUpdate: "resolve", ModelFiles: "write"}[holder]
    with running(tmp_path / "server", one_version_a_visit) as server:
        peer = server.enrol()
        visit = peer.check_in()
        assert peer.put(visit, body_of(ONES)).status_code == 200
        failing_once(monkeypatch, holder, name, DESCRIPTORS)
        assert kind_of(peer.http.post("/v1/checkin", json={}), 503) == "busy"
        ready = peer.http.get("/readyz")
        assert ready.status_code == 503
        assert "version 1" in ready.text
        assert peer.check_in()["version"] == 1
        assert peer.http.get("/readyz").text == "ok\n"


def test_a_full_disk_shows_in_readyz_until_the_reserve_is_back(tmp_path, monkeypatch):
    with running(tmp_path / "server", one_version_a_visit) as server:
        peer = server.enrol()
        visit = peer.check_in()
        assert (server.folder / "reserve").exists()
        failing_once(monkeypatch, os, "pwrite", FULL)
        assert kind_of(peer.put(visit, body_of(ONES)), 503) == "no-space"
        ready = peer.http.get("/readyz")
        assert (ready.status_code, ready.text) == (503, "No space left on device\n")
        until(lambda: peer.http.get("/readyz").status_code == 200)
        assert (server.folder / "reserve").exists()
        assert peer.put(visit, body_of(ONES)).json()["receipt"]["counted"]


def test_a_sync_needs_no_descriptor(tmp_path, monkeypatch):
    with running(tmp_path / "server", one_version_a_visit) as server:
        peer = server.enrol()
        visit = peer.check_in()
        opened = type(server.folder).open

        def fails(path, *arguments, **more):
            if path.name.startswith("segment-"):
                raise DESCRIPTORS
            return opened(path, *arguments, **more)

        monkeypatch.setattr(type(server.folder), "open", fails)
        assert peer.put(visit, body_of(ONES)).json()["receipt"]["counted"]


def test_a_folder_that_cannot_be_listed_for_lack_of_a_descriptor_is_listed_later(server, monkeypatch):
    peer = server.enrol()
    failing_once(monkeypatch, os, "scandir", OSError(errno.EMFILE, os.strerror(errno.EMFILE), "models"))
    assert kind_of(peer.http.get("/v1/models/latest"), 503) == "busy"
    assert peer.http.get("/v1/models/latest").status_code == 307


def test_a_log_that_cannot_be_synced_ends_the_server_in_one_line(tmp_path, monkeypatch):
    def meet_it():
        with running(tmp_path / "server", one_version_a_visit) as server:
            peer = server.enrol()
            visit = peer.check_in()
            failing_once(monkeypatch, os, "fdatasync", BROKEN)
            assert peer.put(visit, body_of(ONES)).status_code == 503
            until(lambda: not server.service.is_ready)

    with pytest.raises(OffbeatError, match="segment-1: Input/output error"):
        meet_it()
