"""Clients and progress from folders without a server."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from filelock import FileLock
from offbeat_core.errors import OffbeatError

from offbeat.algorithms import FedBuff
from offbeat.service.server import admin
from offbeat.service.store.backup import back_up
from tests.service.conftest import running
from tests.service.http_client import ONES

CONFIG = {"algorithm": {"algorithm": "fedbuff"}, "service": {"clients": 5}, "stop": {"versions": 2}}
RELEASE = Path(__file__).parents[2] / "deploy/release_0_1/server"


@pytest.fixture
def folders(tmp_path):
    """Return folders and what the server said of them: a copy as of a kill, a backup, and the stopped server's."""
    folder, killed, copy = tmp_path / "server", tmp_path / "killed", tmp_path / "backup"
    make = lambda: FedBuff(buffer_size=1, concurrency=4)  # noqa: E731
    with running(folder, make, max_staleness=0, stop_versions=2, config=CONFIG, checkpoint_seconds=1e6) as server:
        peers = [server.enrol(name=name) for name in ("one", "twö", "three")]
        visits = [peer.check_in() for peer in peers]
        assert peers[0].send(visits[0], ONES)["counted"]
        assert not peers[1].send(visits[1], ONES)["counted"]
        assert peers[0].check_in()
        server.admin.http.post("/v1/admin/extend", json={"versions": 7})
        server.admin.http.post("/v1/admin/pause")
        server.admin.http.delete("/v1/clients/2")
        shutil.copytree(folder, killed)
        back_up(folder, copy)
        said = admin.status(folder), admin.clients(folder)
    return {"stopped": folder, "killed": killed, "backup": copy}, *said


def test_a_folder_without_a_server_says_what_the_server_said(folders):
    found, status, clients = folders
    (found["killed"] / "url").unlink()  # else its server would answer
    assert clients.listens
    for name, folder in found.items():
        read = admin.clients(folder)
        assert not read.listens
        keys = ["last_seen"] if name != "stopped" else []  # of the last checkpoint
        without = [{key: value for key, value in client.items() if key not in keys} for client in clients.clients]
        assert [
            {key: client[key] for key in some} for client, some in zip(read.clients, without, strict=True)
        ] == without
        now = admin.status(folder)
        assert now.pop("server") == "stopped"
        assert now.pop("run_seconds") > 0
        assert now.pop("saved_version") == (0 if name == "backup" else 1)  # the newest model that was copied
        assert now.items() <= status.items()
    assert (status["paused"], status["stop_versions"], status["lost"]) == (True, 7, 1)


def test_a_run_that_a_metric_may_have_ended_is_not_said_to_go_on(tmp_path):
    config = {**CONFIG, "stop": {"versions": 2, "target": 0.9}}
    make = lambda: FedBuff(buffer_size=1, concurrency=4)  # noqa: E731
    with running(tmp_path / "server", make, stop_versions=2, config=config) as server:
        peer = server.enrol()
        assert peer.send(peer.check_in(), ONES)["counted"]
        shutil.copytree(server.folder, tmp_path / "before")
        (tmp_path / "before/url").unlink()
        assert "finished" not in admin.status(tmp_path / "before")
        assert peer.send(peer.check_in(), ONES)["counted"]
    assert admin.status(tmp_path / "server")["finished"]


def test_a_backup_that_can_only_be_read_is_read(folders, monkeypatch):
    backup = folders[0]["backup"]
    before = sorted(path.name for path in backup.iterdir())
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert [client["name"] for client in admin.clients(backup).clients] == ["one", "twö", "three"]
    assert sorted(path.name for path in backup.iterdir()) == before


def test_a_server_that_starts_is_not_taken_for_a_stopped_one(folders):
    folder = folders[0]["stopped"]
    with FileLock(folder / "server.lock"), pytest.raises(OffbeatError, match="but does not answer"):
        admin.clients(folder)
    assert len(admin.clients(folder).clients) == 3


def test_actions_need_a_server(folders):
    for act in (
        lambda folder: admin.revoke_client(folder, "one"),
        lambda folder: admin.rename_client(folder, "one", "two"),
        lambda folder: admin.set_paused(folder, is_paused=True),
        lambda folder: admin.extend(folder, 9),
    ):
        with pytest.raises(OffbeatError, match="does not answer"):
            act(folders[0]["stopped"])


def test_a_broken_folder_is_one_line(folders):
    folder = folders[0]["stopped"]
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database:
        database.execute("UPDATE log SET arguments = '{'")
        columns = "run, number, epoch, owner, name, arguments"
        database.execute(
            f"INSERT INTO log ({columns}) SELECT run, max(number) + 1, 1, 'accounts', 'enrol', '{{' FROM log"
        )
        database.commit()
    for read in (admin.clients, admin.status):
        with pytest.raises(OffbeatError, match=r"is broken .*restore a backup"):
            read(folder)
    (folder / "offbeat.sqlite").write_bytes(b"x" * 5000)
    with pytest.raises(OffbeatError, match="is broken"):
        admin.clients(folder)


def test_a_folder_of_another_form_is_refused(folders):
    folder = folders[0]["stopped"]
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database:
        database.execute("UPDATE runs SET form = form + 1")
        database.commit()
    for read in (admin.clients, admin.status):
        with pytest.raises(OffbeatError, match="holds a run of another version of Offbeat"):
            read(folder)


def test_the_folder_of_a_release_is_read(tmp_path):
    folder = tmp_path / "server"
    shutil.copytree(RELEASE, folder)
    (client,) = admin.clients(folder).clients
    assert (client["visits"], client["counted"], client["mean_staleness"]) == (9, 9, 0.0)
    assert client["revoked"] is None
    status = admin.status(folder)
    assert (status["counted"], status["saved_version"], status["paused"]) == (9, 2, False)
    assert "finished" not in status
