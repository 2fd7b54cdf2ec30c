"""More clients in a run of a server."""

import torch

from offbeat.algorithms import FedAvg
from offbeat.service.server import stopped_server
from tests.service.conftest import LENGTH, running
from tests.service.http_client import kind_of


def test_more_clients_enrol_after_a_growth_which_lasts(tmp_path):
    folder = tmp_path / "server"
    with running(folder, clients=1) as server:
        server.enrol()
        assert kind_of(server.peer(server.enrolment_token).http.post("/v1/enrol", json={}), 409) == "full"
        assert server.admin.http.post("/v1/admin/grow", json={"clients": 2}).json() == {"clients": 2}
        assert server.admin.http.post("/v1/admin/grow", json={"clients": 2}).status_code == 200  # again
        second = server.enrol()
        visit = second.check_in()
        assert second.send(visit, torch.ones(LENGTH))["counted"]
        token = second.token
        server.checkpoint()
        assert server.admin.http.post("/v1/admin/grow", json={"clients": 3}).json() == {"clients": 3}
        assert kind_of(server.admin.http.post("/v1/admin/grow", json={"clients": 2}), 409) == "cannot-grow"
    assert stopped_server.status(folder)["clients"] == 3
    with running(folder, clients=1) as server:
        assert server.admin.http.get("/v1/status").json()["clients"] == 3
        assert server.peer(token).check_in() is not None
        third = server.enrol()
        assert third.send(third.check_in(), torch.ones(LENGTH))["counted"]
        assert kind_of(server.peer(server.enrolment_token).http.post("/v1/enrol", json={}), 409) == "full"


def test_an_algorithm_that_selects_cohorts_refuses_in_one_line(tmp_path):
    with running(tmp_path / "server", lambda: FedAvg(cohort=1), clients=1) as server:
        answer = server.admin.http.post("/v1/admin/grow", json={"clients": 2})
        assert kind_of(answer, 409) == "cannot-grow"
        assert answer.json()["detail"].startswith("fedavg cannot have more clients")
        assert server.admin.http.get("/v1/status").json()["clients"] == 1
