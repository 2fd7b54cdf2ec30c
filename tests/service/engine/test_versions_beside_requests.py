"""Requests while a version is written, which takes long for a large model."""

import asyncio
import json
import math
import shutil
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

from offbeat.algorithms import FedBuff
from offbeat.service.store.model_files import ModelFiles
from tests.service.conftest import body_of, running
from tests.service.http_client import ONES, check_log, check_progress, until


@contextmanager
def uploading(server, peers, visits):
    """Upload the updates of version 1; the thread that makes it begins at the context's end."""
    publisher, may_begin = server.service.engine.publisher, threading.Event()
    publisher._thread.submit(may_begin.wait, 20)
    with ThreadPoolExecutor(1) as pool:
        peers[0].send(visits[0], ONES)
        last = pool.submit(peers[1].put, visits[1], body_of(ONES), params={"checkin": "true"})
        try:
            until(lambda: 1 in publisher._making)
            yield
        finally:
            may_begin.set()
        answer = last.result(10).json()
        assert answer["receipt"]["counted"]
        visits[1] = answer["next"]["visit"]
        visits[0] = peers[0].check_in()


def slots(server):
    return server.service.engine.coordinator.visits


def test_others_go_on_and_no_later_model_is_written_under_an_earlier_number(tmp_path, monkeypatch):
    def slowly(files, version, *vectors):
        time.sleep(0.3)
        write(files, version, *vectors)

    write = ModelFiles.write
    monkeypatch.setattr(ModelFiles, "write", slowly)
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=2, concurrency=5), checkpoint_seconds=1e6) as server:
        peers = [server.enrol() for _ in range(5)]
        visits = [peer.check_in() for peer in peers[:4]]
        with ThreadPoolExecutor(3) as pool, uploading(server, peers, visits):
            new = pool.submit(peers[4].check_in)  # wants work, which the version has to be there for
            assert peers[2].http.post("/v1/visits/0/heartbeat").json()["wanted"]
            late = [
                pool.submit(peer.send, visit, 3 * ONES) for peer, visit in zip(peers[2:4], visits[2:4], strict=True)
            ]
            until(lambda: server.service.engine.coordinator.algorithm.version == 2)
            assert not new.done()
            assert not server.service.engine.models.path(1).exists()
        assert all(one.result(10)["counted"] for one in late)
        assert new.result(10)["version"] == 2
        until(lambda: server.service.engine.models.versions() >= {0, 1, 2})
        models = [server.service.engine.models.read(version) for version in range(3)]
        assert torch.equal(models[0], models[1] + ONES)
        assert torch.allclose(models[1] - models[2], 3 * ONES / math.sqrt(2))  # their staleness is 1
        peers[1].send(visits[1], ONES)
        server.admin.http.get("/v1/status")
        shutil.copytree(tmp_path / "server", tmp_path / "killed")
        model = server.service.engine.coordinator.algorithm.model
    check_log(tmp_path / "killed")
    with running(tmp_path / "killed") as server:
        assert torch.equal(server.service.engine.coordinator.algorithm.model, model)


def test_each_version_that_is_due_is_evaluated_though_others_go_on_meanwhile(tmp_path):
    command = [sys.executable, "-c", "while input(): print('{}', flush=True)"]
    with running(
        tmp_path / "server",
        lambda: FedBuff(buffer_size=2, concurrency=5),
        evaluate_every=1,
        evaluate_command=command,
        checkpoint_seconds=1e6,
    ) as server:
        engine, peers = server.service.engine, [server.enrol() for _ in range(4)]
        visits = [peer.check_in() for peer in peers]
        with ThreadPoolExecutor(2) as pool, uploading(server, peers, visits):
            assert peers[2].http.post("/v1/visits/0/heartbeat").json()["wanted"]
            late = [pool.submit(peer.send, visit, ONES) for peer, visit in zip(peers[2:], visits[2:], strict=True)]
            until(lambda: engine.publisher.due == [1, 2])
            checkpoint = asyncio.run_coroutine_threadsafe(server.checkpoints.write(), server.loop)
        assert all(one.result(10)["counted"] for one in late)
        checkpoint.result(10)
        results = tmp_path / "server" / "evaluations.jsonl"
        until(lambda: results.exists() and results.read_text().count("\n") == 2)
        assert [json.loads(line)["version"] for line in results.read_text().splitlines()] == [1, 2]


def test_a_client_that_is_revoked_while_a_version_is_written_gets_no_work(tmp_path):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=2, concurrency=5)) as server:
        peers = [server.enrol() for _ in range(3)]
        visits = [peer.check_in() for peer in peers[:2]]
        with ThreadPoolExecutor(2) as pool, uploading(server, peers, visits):
            new = pool.submit(peers[2].http.post, "/v1/checkin", json={"wait_seconds": 5})
            until(lambda: 2 in server.service.engine.waiting)
            gone = pool.submit(server.admin.http.delete, "/v1/clients/2")
            until(lambda: 2 in server.service.engine._dismissed)
        assert new.result(10).status_code in (200, 401)
        assert gone.result(10).status_code == 204
        assert not slots(server).has_slot(2)
        check_progress(server, peers[:1])


def test_a_request_that_is_given_up_while_a_version_is_written_frees_the_lock(tmp_path):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=2, concurrency=5)) as server:
        peers = [server.enrol() for _ in range(3)]
        visits = [peer.check_in() for peer in peers[:2]]
        engine = server.service.engine

        async def given_up():
            task = asyncio.create_task(engine.check_in(2))
            await asyncio.sleep(0.05)
            async with engine.lock:
                task.cancel()
                await asyncio.sleep(0.01)
                task.cancel()  # while it waits for the lock
                await asyncio.sleep(0.01)
                assert not task.done()
            await asyncio.wait([task])
            return task.cancelled()

        with uploading(server, peers, visits):
            assert asyncio.run_coroutine_threadsafe(given_up(), server.loop).result(10)
            assert not engine.lock.locked()
        check_progress(server, peers[2:])
