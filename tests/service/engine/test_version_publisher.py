"""Versions stay hidden until the log holds the updates that they are made of.

Clients, evaluations and exports see nothing of them before.
"""

import os
import shutil
import sqlite3
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
import torch

from offbeat.algorithms import FedBuff
from offbeat.service.server.admin import newest_model
from tests.service.conftest import LENGTH, Served, body_of, running
from tests.service.http_client import until

ONES = torch.ones(LENGTH)
# Writes the path of each version that it is given into a file, and answers.
RECORDER = """
import pathlib, sys
for line in sys.stdin:
    with open(sys.argv[1], "a") as file:
        file.write(line)
    print('{"loss": 0.0}', flush=True)
"""


@contextmanager
def no_commits(server: Served) -> Generator[None]:
    """Keep the server's log from being written."""
    with closing(sqlite3.connect(server.folder / "offbeat.sqlite", isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            database.execute("ROLLBACK")


@pytest.fixture
def recorded(tmp_path):
    return tmp_path / "recorded"


@pytest.fixture
def server(tmp_path, recorded):
    command = [sys.executable, "-c", RECORDER, str(recorded)]
    with running(
        tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=4), evaluate_every=1, evaluate_command=command
    ) as served:
        yield served


def test_a_version_is_handed_out_evaluated_and_exported_once_its_log_is_on_disk(server, recorded):
    peers = [server.enrol() for _ in range(3)]
    visit = peers[0].check_in()
    engine = server.service.engine
    with ThreadPoolExecutor(3) as pool:
        with no_commits(server):
            upload = pool.submit(peers[0].put, visit, body_of(ONES))
            until(lambda: engine.coordinator.algorithm.version == 1)
            work = pool.submit(peers[1].check_in)
            until(lambda: engine.coordinator.statistics.assigned == 2)  # so version 1 has been written
            reader = peers[2].http
            assert reader.get("/v1/models/latest").headers["location"] == "0"
            too_early = pool.submit(reader.get, "/v1/models/1")  # a denial waits for the log, too
            assert newest_model(server.folder).name == "0.safetensors"
            assert not recorded.exists()
            assert not upload.done()
            assert not work.done()
            assert not too_early.done()
        assert too_early.result(20).status_code == 404
        assert upload.result(20).json()["receipt"]["new_version"]
        assert work.result(20)["version"] == 1
    assert reader.get("/v1/models/latest").headers["location"] == "1"
    assert reader.get("/v1/models/1").status_code == 200
    assert newest_model(server.folder).name == "1.safetensors"
    until(recorded.exists)


def test_versions_that_a_killed_server_had_not_published_are_deleted(tmp_path):
    with running(tmp_path / "server") as server:
        server.enrol()
    leftovers = [tmp_path / "server" / "models" / ".7.pending", tmp_path / "server" / ".7.evaluated"]
    for path in leftovers:
        path.write_bytes(b"half of it")
    with running(tmp_path / "server"):
        assert not any(map(os.path.exists, leftovers))


def make():
    return FedBuff(buffer_size=2, concurrency=9)


def refused_steps(server):
    assert server.admin.http.get("/v1/status").json()["refused_steps"] == len(
        server.service.engine.coordinator.algorithm.refused_steps
    )
    metrics = server.admin.http.get("/metrics").text
    return int(float(metrics.split("\noffbeat_refused_steps ")[1].split()[0]))


def test_a_step_that_overflows_is_reported_and_the_next_one_counts(tmp_path, caplog):
    with running(tmp_path / "server", make, max_update_norm=1e39) as server:
        peers = [server.enrol() for _ in range(2)]
        tokens = [peer.http.headers["authorization"].split()[1] for peer in peers]
        assert refused_steps(server) == 0
        before = peers[0].http.get("/v1/models/0").content
        for peer in peers:
            assert peer.send(peer.check_in(), 3e38 * ONES)["counted"]
        visits = [peer.check_in() for peer in peers]
        assert [visit["version"] for visit in visits] == [1, 1]
        assert refused_steps(server) == 1
        assert before.endswith(bytes(4 * LENGTH))
        assert peers[0].http.get("/v1/models/1").content.endswith(bytes(4 * LENGTH))
        (logged,) = [record for record in caplog.records if record.message == "step_refused"]
        assert logged.fields == {
            "version": 0,
            "problem": "the sum of the updates is not finite, or too large for 32 bits",
        }
        shutil.copytree(server.folder, tmp_path / "killed")
    caplog.clear()
    with running(tmp_path / "killed", make) as server:
        assert refused_steps(server) == 1
        assert "step_refused" not in caplog.messages
        for token, visit in zip(tokens, visits, strict=True):
            assert server.peer(token).send(visit, ONES)["counted"]
        torch.testing.assert_close(server.service.engine.coordinator.algorithm.model, -ONES)
        assert refused_steps(server) == 1
