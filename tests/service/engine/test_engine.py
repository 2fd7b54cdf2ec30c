import asyncio
import errno
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import torch

from offbeat.algorithms import FedAvg, FedBuff
from offbeat.service.engine.engine import Engine
from offbeat.service.log import log_writer
from offbeat.service.store.model_files import ModelFiles
from tests.service.conftest import running
from tests.service.http_client import ONES, kind_of, line, until


def test_a_disk_that_is_full_when_a_lease_lapses_does_not_end_the_server(tmp_path, monkeypatch):
    write, full = ModelFiles.write, threading.Event()

    def fails(self: ModelFiles, version: int, *vectors: torch.Tensor | None) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, version, *vectors)

    monkeypatch.setattr(ModelFiles, "write", fails)
    with running(tmp_path / "server", lambda: FedAvg(cohort=2), lease_seconds=0.4) as server:
        peers = [server.enrol() for _ in range(3)]
        visits = [peer.check_in() for peer in peers[:2]]
        full.set()
        assert peers[0].send(visits[0], ONES)["counted"]
        with ThreadPoolExecutor(1) as pool:
            # There is work when the other's lease has lapsed.
            waits = pool.submit(peers[2].http.post, "/v1/checkin", json={"wait_seconds": 3.0})
            time.sleep(1.0)
            assert peers[0].http.get("/healthz").status_code == 200
            assert peers[0].http.get("/readyz").status_code == 503
            full.clear()
            assert waits.result(10).status_code in (200, 503)
        until(lambda: peers[2].http.get("/readyz").status_code == 200)
        assert peers[2].check_in()["version"] == 1


def test_a_check_in_that_cannot_be_answered_leaves_nobody_waiting(tmp_path, monkeypatch):

    write, full = ModelFiles.write, threading.Event()

    def fails(self: ModelFiles, version: int, *vectors: torch.Tensor | None) -> None:
        if full.is_set() and version:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, version, *vectors)

    monkeypatch.setattr(ModelFiles, "write", fails)
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=2)) as server:
        peers = [server.enrol() for _ in range(3)]
        peers[0].send(peers[0].check_in(), ONES)
        full.set()
        answer = peers[1].http.post("/v1/checkin", json={})
        assert kind_of(answer, 503) == "no-space"
        until(lambda: len(server.service.engine.waiting) == 0)
        full.clear()
        until(lambda: peers[2].http.get("/readyz").status_code == 200)
        assert peers[2].check_in()["version"] == 1
        assert server.service.engine.coordinator.statistics.assigned == 2


def test_a_client_that_disconnects_while_it_waits_gets_no_work(server):
    peers = [server.enrol() for _ in range(5)]
    visits = [peer.check_in() for peer in peers[:4]]
    with line(server, peers[4]) as opened:
        opened.begin("POST", "/v1/checkin", "Content-Type: application/json", length=20)
        opened.send(b'{"wait_seconds": 20}')
        until(lambda: server.service.engine.waiting)
    time.sleep(0.3)
    peers[0].send(visits[0], ONES)
    assert server.service.engine.coordinator.statistics.assigned == 4


def test_a_denial_waits_for_the_rows_behind_it_and_then_for_a_log_that_others_share():
    waits = []

    async def wait_until_durable():
        waits.append("durable")

    async def confirm():
        waits.append("leads")

    engine = Engine.__new__(Engine)
    engine.log_writer = SimpleNamespace(wait_until_durable=wait_until_durable, confirm=confirm)
    for engine.shared in (None, object()):
        asyncio.run(engine.confirm())
    assert waits == ["durable", "durable", "leads"]


def test_a_heartbeat_is_refused_while_too_many_rows_wait_for_the_log(server, monkeypatch):
    peer = server.enrol()
    visit, writer = peer.check_in(), server.service.engine.log_writer
    beat = partial(peer.http.post, f"/v1/visits/{visit['number']}/heartbeat")
    assert beat().json()["wanted"]
    number = writer.number
    monkeypatch.setattr(log_writer, "_MOST_WAITING", 0)
    monkeypatch.setattr(writer, "_problem", "no connection")
    assert kind_of(beat(), 503) == "no-space"
    assert writer.number == number
