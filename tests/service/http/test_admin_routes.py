import torch

from offbeat.algorithms import FedLaAvg
from tests.service.conftest import LENGTH, running
from tests.service.http_client import kind_of


def test_the_status_and_the_metrics_count(server):
    peers = [server.enrol() for _ in range(2)]
    assert peers[0].send(peers[0].check_in(), torch.ones(LENGTH))["counted"]
    peers[1].check_in()
    status = server.admin.http.get("/v1/status").json()
    expected = {"algorithm": "fedbuff", "version": 0, "finished": False, "enrolled": 2, "clients": 5, "assigned": 2}
    assert expected.items() <= status.items()
    assert (status["counted"], status["unused"], status["lost"], status["waits_for"]) == (1, 0, 0, None)
    metrics = server.admin.http.get("/metrics").text.splitlines()
    for line in (
        'offbeat_updates_total{outcome="counted"} 1.0',
        "offbeat_in_flight 1.0",
        "offbeat_enrolled 2.0",
        "offbeat_version 0.0",
        "offbeat_waiting 0.0",
    ):
        assert line in metrics


def test_health_and_readiness_need_no_token_and_a_server_that_stops_is_not_ready(tmp_path):
    with running(tmp_path / "server", lambda: FedLaAvg(cohort=2), clients=2, waits_for_examples=True) as server:
        nobody = server.peer(None).http
        assert nobody.get("/healthz").text == "ok\n"
        ready = nobody.get("/readyz")
        assert (ready.status_code, ready.text) == (200, "waits for 2 of 2 clients to enrol\n")
        peer = server.enrol()
        server.service.is_ready = False
        ready = nobody.get("/readyz")
        assert (ready.status_code, ready.text) == (503, "stopping\n")
        assert kind_of(peer.http.post("/v1/checkin", json={}), 503) == "stopping"
