"""A store that is broken is refused in one line, which names the file and the row."""

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


def updates(folder):
    """Return the rows of the updates: their numbers and files."""
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database:
        return database.execute("SELECT number, blob FROM log WHERE name = 'receive' ORDER BY number").fetchall()


def change(folder, statement):
    with closing(sqlite3.connect(folder / "offbeat.sqlite")) as database, database:
        assert database.execute(statement).rowcount > 0


def refusal(folder, settings):
    with pytest.raises(OffbeatError) as caught, running(folder, **settings):
        raise AssertionError("it started")
    return str(caught.value)


@pytest.mark.parametrize("spoil", ["UPDATE bodies SET body = substr(body, 2)", "DELETE FROM bodies"])
def test_a_small_update_that_differs_from_its_row_is_refused(spoil, tmp_path):
    folder, settings = written(tmp_path, LENGTH)
    number, _ = updates(folder)[1]
    change(folder, f"{spoil} WHERE number = {number}")
    assert re.search(rf"row {number}.*restore a backup", refusal(folder, settings))


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-1] + b"x"), id="another byte"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:-1]), id="too short"),
        pytest.param(lambda path: path.unlink(), id="not there"),
    ],
)
def test_a_large_update_that_differs_from_its_row_is_refused(spoil, tmp_path):
    folder, settings = written(tmp_path, LARGE_LENGTH)
    number, file = updates(folder)[1]
    spoil(folder / "updates" / file)
    line = rf"{folder / 'updates' / file} is broken.*row {number}; restore a backup"
    assert re.search(line, refusal(folder, settings))


def test_an_update_that_agrees_with_the_log_is_replayed(tmp_path):
    folder, settings = written(tmp_path, LENGTH)
    with running(folder, **settings) as server:
        assert server.service.engine.coordinator.statistics.counted == 2
        history = server.service.engine.run.history
        assert (history.staleness, [point.version for point in history.versions]) == ({0: 2}, [1])


def test_a_row_that_cannot_be_replayed_or_is_missing_is_named(tmp_path):
    folder, settings = written(tmp_path, LENGTH)
    first, _ = updates(folder)[0]
    shutil.copytree(folder, tmp_path / "gap")
    other = "replace(arguments, '\"client\":0', '\"client\":3')"
    change(folder, f"UPDATE log SET arguments = {other} WHERE number = {first}")
    assert re.search(rf"{folder} is broken: row {first} .*restore a backup", refusal(folder, settings))
    change(tmp_path / "gap", f"DELETE FROM log WHERE number = {first}")
    line = rf"the log is broken: row {first + 1} of epoch 1 follows row {first - 1} of epoch 1; restore a backup"
    assert re.search(line, refusal(tmp_path / "gap", settings))


def test_a_log_that_is_older_than_the_checkpoint_is_refused(tmp_path):
    folder, settings = written(tmp_path, LENGTH)
    shutil.copy(folder / "offbeat.sqlite", tmp_path)
    with running(folder, **settings):
        pass  # it ends with a checkpoint
    shutil.copy(tmp_path / "offbeat.sqlite", folder)
    assert re.search(r"the log is not that of .*safetensors: it is older", refusal(folder, settings))
    (folder / "offbeat.sqlite").unlink()
    assert re.search(r"the log is not that of .*safetensors: it is older", refusal(folder, settings))


def test_a_log_that_was_restored_and_went_on_is_refused_beside_a_later_checkpoint(tmp_path):
    folder, settings = written(tmp_path, LENGTH)
    shutil.copytree(folder, tmp_path / "restored")
    with running(folder, **settings) as server:
        server.enrol()
    with running(tmp_path / "restored", **settings) as server:  # which begins an epoch of the same number
        for _ in range(3):
            server.enrol()
    shutil.copy(tmp_path / "restored" / "offbeat.sqlite", folder)
    assert re.search("the log is not that of .*restored and went on", refusal(folder, settings))


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
