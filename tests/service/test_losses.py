"""An algorithm of a test's own, which picks the client with the highest loss, on the service."""

import json
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import torch

from tests.page_code import page_code
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import kind_of, until
from tests.simulation.test_simulator_contract import Greedy

ONES = torch.ones(LENGTH)


def greedy():
    return Greedy(buffer_size=1, concurrency=1)


def losses(server):
    return server.service.engine.coordinator._candidates.pool.losses


def test_the_client_with_the_highest_loss_comes_first_and_losses_outlive_a_kill(tmp_path):
    with (
        ThreadPoolExecutor(3) as pool,
        running(tmp_path / "server", greedy, clients=3, checkpoint_seconds=1e6) as server,
    ):
        peers = [server.enrol() for _ in range(3)]
        visits, order = {0: peers[0].check_in()}, []
        waiting = {client: pool.submit(peers[client].check_in, 20.0) for client in (1, 2)}
        # Those who have told no loss come first, by number; then it is 5 before 1, and before ½.
        for client, loss in ((0, 1.0), (1, 5.0), (2, 0.5), (1, 0.25)):
            until(lambda: len(server.service.engine.waiting) == 2)
            assert peers[client].send(visits.pop(client), ONES, loss=loss)["counted"]
            until(lambda: any(future.done() for future in waiting.values()))
            (following,) = (client for client, future in waiting.items() if future.done())
            order.append(following)
            visits[following] = waiting.pop(following).result()
            waiting[client] = pool.submit(peers[client].check_in, 20.0)
        assert order == [1, 2, 1, 0]
        shutil.copytree(server.folder, tmp_path / "killed")
    with running(tmp_path / "killed", greedy, clients=3, checkpoint_seconds=1e6) as server:
        assert losses(server) == [1.0, 0.25, 0.5]


def test_the_pool_of_the_how_to_page_outlives_a_kill(tmp_path):
    def make():
        return page_code("how-to/own-selection.md", "oort.py").OortFedAvg(cohort=1)

    def pool_of(server):
        return server.service.engine.coordinator._candidates.pool

    with running(tmp_path / "server", make, clients=2, checkpoint_seconds=1e6) as server:
        for loss in (2.0, -0.5):
            peer = server.enrol()
            visit = peer.check_in()
            assert peer.send(visit, ONES, loss=loss, examples=3, step_seconds=0.5, upload_seconds=1.0)["counted"]
        shutil.copytree(server.folder, tmp_path / "killed")
        steps = visit["plan"]["steps"]
    with running(tmp_path / "killed", make, clients=2, checkpoint_seconds=1e6) as server:
        assert pool_of(server).seen == {0: (6.0, 0.5 * steps + 1.0, 1), 1: (1.5, 0.5 * steps + 1.0, 2)}
        assert (pool_of(server).picks, pool_of(server).round) == (2, 3)


def test_an_update_without_its_loss_is_refused_and_may_come_again(tmp_path):
    with running(tmp_path / "server", greedy) as server:
        peer = server.enrol()
        visit = peer.check_in()
        for loss in ({}, {"loss": None}):
            answer = peer.put(visit, body_of(ONES), **loss)
            assert kind_of(answer, 422) == "no-loss"
            assert "send loss" in answer.json()["detail"]
        assert server.service.engine.coordinator.statistics.counted == 0
        assert peer.send(visit, ONES, loss=-2.5)["counted"]
        assert losses(server)[0] == -2.5


def test_an_unneeded_loss_is_not_kept(server):
    peer = server.enrol()
    assert peer.send(peer.check_in(), ONES, loss=3.0)["counted"]
    with closing(sqlite3.connect(server.folder / "offbeat.sqlite")) as database:
        ((arguments,),) = database.execute("SELECT arguments FROM log WHERE name = 'receive'").fetchall()
    assert json.loads(arguments)["loss"] is None
