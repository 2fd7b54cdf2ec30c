import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch

from offbeat.algorithms import FedBuff
from offbeat.service.engine import server_checkpoint as checkpoint
from offbeat.tensor_file import read_checkpoint
from tests.service.conftest import LENGTH, Peer, body_of, running
from tests.service.http_client import ONES, check_log, put_in_pieces


def test_a_checkpoint_deletes_nothing_that_an_upload_under_way_needs(tmp_path):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1000, concurrency=4)) as server:
        peers = [server.enrol() for _ in range(4)]
        loop, stop = server.loop, threading.Event()

        def checkpoints() -> None:
            while not stop.is_set():
                asyncio.run_coroutine_threadsafe(server.checkpoints.write(), loop).result(10)

        def uploads(peer: Peer) -> None:
            for number in range(25):
                visit = peer.check_in()
                send = put_in_pieces if number % 3 == 0 else peer.put
                answer = send(peer, visit, body_of(ONES)) if send is put_in_pieces else peer.put(visit, body_of(ONES))
                assert answer.json()["receipt"]["counted"]

        with ThreadPoolExecutor(5) as pool:
            checks = pool.submit(checkpoints)
            for done in [pool.submit(uploads, peer) for peer in peers]:
                done.result(30)
            stop.set()
            checks.result(10)
        check_log(server.folder)
        assert server.service.engine.coordinator.statistics.counted == 100
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1000, concurrency=4)) as server:
        assert server.service.engine.coordinator.statistics.counted == 100
        assert torch.equal(server.service.engine.coordinator.algorithm.state_dict()["buffer.sum"], 100 * ONES)


def test_a_checkpoint_keeps_the_newest_version_that_has_a_file(tmp_path, monkeypatch):
    write, began, goes_on = checkpoint.write_checkpoint, threading.Event(), threading.Event()

    def slowly(path, state):
        began.set()
        goes_on.wait(10)
        write(path, state)

    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=1)) as server:
        peer = server.enrol()
        visit = peer.check_in()
        monkeypatch.setattr(checkpoint, "write_checkpoint", slowly)
        written = asyncio.run_coroutine_threadsafe(server.checkpoints.write(), server.loop)
        assert began.wait(10)
        peer.send(visit, ONES)
        peer.send(peer.check_in(), ONES)  # version 2, which no visit has asked for
        goes_on.set()
        written.result(10)
        assert peer.http.get("/v1/models/latest").headers["location"].endswith("/1")
        assert peer.http.get("/v1/models/1").status_code == 200


def test_checkpoints_are_written_one_at_a_time(tmp_path, monkeypatch):
    """Also if one is cancelled while it is written, as the scheduled one may be when the server stops."""
    write, at_once, began = checkpoint.write_checkpoint, [0, 0], threading.Event()

    def slowly(path, state):
        at_once[0] += 1
        at_once[1] = max(at_once)
        began.set()
        time.sleep(0.1)  # so that the others begin before this one ends
        write(path, state)
        at_once[0] -= 1

    with running(tmp_path / "server") as server:
        monkeypatch.setattr(checkpoint, "write_checkpoint", slowly)
        peer = server.enrol()
        peer.send(peer.check_in(), torch.ones(LENGTH))
        cancelled = asyncio.run_coroutine_threadsafe(server.checkpoints.write(), server.loop)
        assert began.wait(10)
        cancelled.cancel()
        with ThreadPoolExecutor(3) as pool:
            made = [pool.submit(server.checkpoint) for _ in range(3)]
        assert [each.result() for each in made] == [None] * 3
        assert at_once == [0, 1]
        (path,) = (server.folder / "checkpoints").glob("*.safetensors")
        assert read_checkpoint(path)["coordinator.statistics.counted"] == 1
