import time
from concurrent.futures import ThreadPoolExecutor

import torch

from offbeat.algorithms import FedBuff, FedLaAvg
from tests.service.conftest import LENGTH, running
from tests.service.http_client import kind_of, until


def test_the_status_and_the_metrics_count(server):
    peers = [server.enrol() for _ in range(2)]
    assert peers[0].send(peers[0].check_in(), torch.ones(LENGTH))["counted"]
    peers[1].check_in()
    status = server.admin.http.get("/v1/status").json()
    expected = {"algorithm": "fedbuff", "version": 0, "finished": False, "enrolled": 2, "clients": 5, "assigned": 2}
    assert expected.items() <= status.items()
    assert (status["counted"], status["unused"], status["lost"], status["waits_for"]) == (1, 0, 0, None)
    assert status["at_work"] == 1  # docs/concepts/operate.md promises it
    metrics = server.admin.http.get("/metrics").text.splitlines()
    for line in (
        'offbeat_updates_total{outcome="counted"} 1.0',
        "offbeat_in_flight 1.0",
        "offbeat_enrolled 2.0",
        "offbeat_version 0.0",
        "offbeat_waiting 0.0",
    ):
        assert line in metrics


def updates(server):
    """Return the numbers of updates of the metrics, and of the status."""
    lines = dict(line.rsplit(" ", 1) for line in server.admin.http.get("/metrics").text.splitlines() if line[0] != "#")
    status = server.admin.http.get("/v1/status").json()
    outcomes = ("counted", "unused")
    return [float(lines[f'offbeat_updates_total{{outcome="{name}"}}']) for name in outcomes], [
        status[name] for name in outcomes
    ]


def test_metrics_and_status_agree_on_updates_that_are_asked_about_again_also_after_a_restart(tmp_path):
    def server_of_fresh_updates():
        return running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=2), max_staleness=0)

    with server_of_fresh_updates() as server:
        fast, slow = server.enrol(), server.enrol()
        visit = slow.check_in()
        assert fast.send(fast.check_in(), torch.ones(LENGTH))["counted"]
        for _ in range(2):
            state = slow.http.get(f"/v1/uploads/{visit['number']}").json()
            assert not state["receipt"]["counted"]
        assert updates(server) == ([1.0, 1.0], [1, 1])
    with server_of_fresh_updates() as server:
        assert updates(server) == ([1.0, 1.0], [1, 1])


def test_a_revoked_client_frees_its_slot_at_once(tmp_path):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=2, concurrency=1), clients=2) as server:
        revoked, waiting = server.enrol(), server.enrol()
        assert revoked.check_in()
        assert waiting.check_in() is None
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(waiting.check_in, 20.0)
            until(lambda: len(server.service.engine.waiting))
            assert server.admin.http.delete("/v1/clients/0").status_code == 204
            assert answer.result(5.0)["version"] == 0
        assert server.admin.http.get("/v1/status").json()["lost"] == 1


def test_two_check_ins_of_a_client_get_the_same_work(tmp_path):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=2, concurrency=1), clients=2) as server:
        first, second = server.enrol(), server.enrol()
        visit = first.check_in()
        with ThreadPoolExecutor(2) as pool:
            answers = [pool.submit(peer.check_in, 20.0) for peer in (second, server.peer(second.token))]
            time.sleep(0.5)
            assert first.send(visit, torch.ones(LENGTH))["counted"]
            one, other = (answer.result(5.0) for answer in answers)
        assert one is not None
        assert one == other


def test_health_and_readiness_need_no_token_and_a_server_that_stops_is_not_ready(tmp_path):
    with running(tmp_path / "server", lambda: FedLaAvg(cohort=2), clients=2, waits_for_examples=True) as server:
        nobody = server.peer(None).http
        assert nobody.get("/healthz").text == "ok\n"
        ready = nobody.get("/readyz")
        assert (ready.status_code, ready.text) == (200, "waits for 2 of 2 clients to enrol or declare examples\n")
        peer = server.enrol()
        server.service.is_ready = False
        ready = nobody.get("/readyz")
        assert (ready.status_code, ready.text) == (503, "stopping\n")
        assert kind_of(peer.http.post("/v1/checkin", json={}), 503) == "stopping"
