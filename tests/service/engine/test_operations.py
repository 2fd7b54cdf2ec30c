"""Accounts of clients whose requests are under way."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from offbeat.algorithms import FedBuff
from tests.service.conftest import running
from tests.service.http_client import kind_of, until


def test_a_client_that_is_revoked_while_its_check_in_waits_gets_no_work(tmp_path):
    with (
        ThreadPoolExecutor(1) as pool,
        running(tmp_path / "server", lambda: FedBuff(buffer_size=2, concurrency=1)) as server,
    ):
        peers = [server.enrol() for _ in range(2)]
        peers[0].check_in()
        waits = pool.submit(peers[1].http.post, "/v1/checkin", json={"wait_seconds": 20})
        until(lambda: server.service.engine.waiting)
        asyncio.run_coroutine_threadsafe(server.service.revoke(1), server.loop).result(10)
        assert kind_of(waits.result(10), 401) == "revoked-token"
        assert len(server.service.engine.waiting) == 0
        assert server.service.status().at_work == 1
