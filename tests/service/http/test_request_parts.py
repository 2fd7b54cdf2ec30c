import pytest
import torch

from offbeat.algorithms import SCAFFOLD, FedBuff, FedDyn, LocalPlan
from offbeat.service.engine.client_support import missing_support
from offbeat.service.http.request_parts import bearer_token
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import kind_of
from tests.simulation.test_simulator_contract import Greedy


@pytest.mark.parametrize(
    ("authorization", "token"),
    [(None, None), ("Bearer x", "x"), ("bearer  x ", "x"), ("Basic x", None), ("Bearer", ""), ("\xff", None)],
)
def test_a_bearer_token_is_read(authorization, token):
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    assert bearer_token({"type": "http", "headers": headers}) == token


FEDBUFF, GREEDY, SCAFFOLD_OF_ONE = FedBuff(), Greedy(buffer_size=1, concurrency=1), SCAFFOLD(cohort=1)
FEDDYN, PLAN = FedDyn(cohort=1), LocalPlan(steps=1, batch_size=1, lr=0.1)


@pytest.mark.parametrize(
    ("algorithm", "supports", "message"),
    [
        (SCAFFOLD_OF_ONE, None, "scaffold corrects local gradients"),
        (GREEDY, None, "fedbuff needs each visit's mean training loss"),
        (SCAFFOLD_OF_ONE, "needs_loss, corrects_gradients_not", "visit.offset"),
        (SCAFFOLD_OF_ONE, "corrects_gradients,needs_loss", None),
        (GREEDY, " needs_loss", None),
        (FEDDYN, "corrects_gradients", "feddyn lets clients keep a regulariser"),
        (FEDDYN, "corrects_gradients, keeps_regulariser", None),
        (FEDBUFF, None, None),
    ],
)
def test_a_client_is_told_what_it_lacks(algorithm, supports, message):
    missing = missing_support(algorithm, PLAN, supports)
    assert missing is None if message is None else message in missing


def test_a_client_that_lacks_something_gets_no_visit_but_its_update_counts(tmp_path):
    with running(tmp_path / "server", lambda: SCAFFOLD(cohort=1), clients=1) as server:
        peer = server.enrol()
        visit = peer.check_in()
        assert (visit["corrects_gradients"], visit["needs_loss"]) == (True, False)
        peer.http.headers["Offbeat-Supports"] = "needs_loss"
        answer = peer.put(visit, body_of(torch.ones(LENGTH)), params={"checkin": "true"}).json()
        assert answer["receipt"] == {"counted": True, "staleness": 0, "new_version": True}
        assert answer["next"] is None
        for wait_seconds in (0.0, 1.0):
            answer = peer.http.post("/v1/checkin", json={"wait_seconds": wait_seconds})
            assert kind_of(answer, 422) == "not-supported"
            assert "visit.offset" in answer.json()["detail"]
        statistics = server.service.engine.coordinator.statistics
        assert (statistics.assigned, len(server.service.engine.waiting)) == (1, 0)
        peer.http.headers["Offbeat-Supports"] = "corrects_gradients,needs_loss"
        assert peer.check_in() is not None


def test_a_client_of_another_protocol_gets_one_line_and_no_work(shared_server):
    new, peer = shared_server.peer(shared_server.enrolment_token), shared_server.enrol()
    visit = peer.check_in()
    for protocol, theirs in (("0.9", "'0.9'"), ("1.1", "'1.1'"), (None, "none")):
        for other, path in ((peer, "/v1/checkin"), (new, "/v1/enrol")):
            del other.http.headers["Offbeat-Protocol"]
            if protocol is not None:
                other.http.headers["Offbeat-Protocol"] = protocol
            answer = other.http.post(path, json={})
            assert kind_of(answer, 422) == "not-supported"
            assert answer.json()["detail"] == (
                f"this server speaks protocol 1.0, the client {theirs}: use the same version of Offbeat for both"
            )
    # What it has trained already counts.
    answer = peer.put(visit, body_of(torch.ones(LENGTH)), params={"checkin": "true"}).json()
    assert (answer["receipt"]["counted"], answer["next"]) == (True, None)


def test_clients_without_abilities_take_part_where_none_is_needed(shared_server):
    peer = shared_server.enrol()
    del peer.http.headers["Offbeat-Supports"]
    visit = peer.check_in()
    assert (visit["corrects_gradients"], visit["needs_loss"]) == (False, False)
    answer = peer.put(visit, body_of(torch.ones(LENGTH)), params={"checkin": "true"}).json()
    assert answer["receipt"]["counted"]
    assert answer["next"]["visit"] is not None
