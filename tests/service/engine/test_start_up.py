"""A store that is broken is refused in one line, which names the file and the record."""

import re
import shutil
import sqlite3
import time
from contextlib import closing

import pytest
import torch
from offbeat_core.errors import OffbeatError

from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import check_progress

LARGE_LENGTH = 300_000


def written(folder, length):
    """Return a copy of a server's folder as a kill would leave it: two updates came after its last checkpoint."""
    settings = {"model": torch.zeros(length), "layout": [("w", (length,))], "checkpoint_seconds": 1e6}
    with running(folder / "server", **settings) as server:
        for _ in range(2):
            peer = server.enrol()
            assert peer.put(peer.check_in(), body_of(torch.ones(length))).status_code == 200
        shutil.copytree(server.folder, folder / "killed")
    return folder / "killed", settings


def place(folder, number):
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database:
        query = "SELECT number, file, offset, size FROM log WHERE name = 'receive' ORDER BY number"
        return database.execute(query).fetchall()[number]


def flip(path, offset):
    with path.open("rb+") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def cut(path, offset):
    with path.open("rb+") as file:
        file.truncate(offset)


@pytest.mark.parametrize("length", [LENGTH, LARGE_LENGTH], ids=["small", "large"])
@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path, end: flip(path, end - 1), id="another byte"),
        pytest.param(lambda path, end: cut(path, end - 1), id="too short"),
        pytest.param(lambda path, end: path.unlink(), id="not there"),
    ],
)
def test_an_update_that_differs_from_the_log_is_refused(spoil, length, tmp_path):
    folder, settings = written(tmp_path, length)
    number, file, offset, size = place(folder, 1)
    spoil(folder / "updates" / file, offset + size)
    line = rf"{folder / 'updates' / file} is broken.*record (\d+); restore a backup"
    with pytest.raises(OffbeatError, match=line) as caught, running(folder, **settings):
        raise AssertionError("it started")
    found = re.search(line, str(caught.value))
    assert found is not None
    # Without the file, it is the first record that refers to it.
    assert int(found[1]) == number if (folder / "updates" / file).exists() else int(found[1]) <= number


def test_an_update_that_agrees_with_the_log_is_replayed(tmp_path):
    folder, settings = written(tmp_path, LENGTH)
    with running(folder, **settings) as server:
        assert server.service.engine.coordinator.statistics.counted == 2


def test_a_record_that_cannot_be_replayed_is_named(tmp_path):
    folder, settings = written(tmp_path, LENGTH)
    number, *_ = place(folder, 0)
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database:
        database.execute(
            "UPDATE log SET arguments = replace(arguments, '\"client\": 0', '\"client\": 3') WHERE file IS NOT NULL"
        )
        database.commit()
    with (
        pytest.raises(OffbeatError, match=rf"offbeat.sqlite.*record {number}.*restore a backup"),
        running(folder, **settings),
    ):
        raise AssertionError("it started")


def test_unknown_files_are_ignored(tmp_path):
    folder = tmp_path / "server"
    with running(folder) as server:
        peer = server.enrol()
        check_progress(server, [peer, peer])
        token = peer.http.headers["authorization"].removeprefix("Bearer ")
    for name in ("models", "updates", "checkpoints", "partial"):
        (folder / name / "notes.safetensors").write_text("mine")
        (folder / name / ".swp").write_text("mine")
    with running(folder, checkpoint_seconds=0.1) as server:
        peer = server.peer(token)
        (folder / "models" / "more.safetensors").write_text("mine")
        assert peer.http.get("/v1/models/latest", follow_redirects=True).status_code == 200
        check_progress(server, [peer, peer])
        time.sleep(0.5)
        check_progress(server, [peer])
