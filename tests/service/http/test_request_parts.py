import pytest
import torch
from starlette.requests import Request

from offbeat.algorithms import SCAFFOLD, FedBuff, FedDyn, LocalPlan
from offbeat.service.http.request_parts import authenticate, bearer_token, missing_support, required_length, supported
from offbeat.service.refusal import Refusal
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import kind_of
from tests.simulation.test_simulator_contract import Greedy


def scope(authorization=None, path="/v1/checkin"):
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    return {"type": "http", "path": path, "headers": headers, "client": ("10.0.0.1", 999)}


@pytest.mark.parametrize(
    ("authorization", "token"),
    [(None, None), ("Bearer x", "x"), ("bearer  x ", "x"), ("Basic x", None), ("Bearer", ""), ("\xff", None)],
)
def test_a_bearer_token_is_read(authorization, token):
    assert bearer_token(Request(scope(authorization))) == token


def test_a_length_is_required():
    assert required_length(0) == 0
    with pytest.raises(Refusal) as caught:
        required_length(None)
    assert caught.value.kind == "length-required"


@pytest.mark.parametrize(("path", "may_have_ended"), [("/v1/checkin", False), ("/v1/enrol", True)])
def test_only_an_enrolment_token_may_have_ended_and_a_valid_one_makes_the_connection_trusted(path, may_have_ended):
    seen = []

    class Parts:
        accounts = property(lambda self: self)

        def check_any(self, token, *, may_have_ended):
            seen.append((token, may_have_ended))

        def trust(self, peer, token):
            seen.append((peer, token))

    parts = Parts()
    authenticate(parts, parts, scope("Bearer x", path))
    assert seen == [("x", may_have_ended), (("10.0.0.1", 999), "x")]


FEDBUFF, GREEDY, SCAFFOLD_OF_ONE = FedBuff(), Greedy(buffer_size=1, concurrency=1), SCAFFOLD(cohort=1)
FEDDYN, PLAN = FedDyn(cohort=1), LocalPlan(steps=1, batch_size=1, lr=0.1)


@pytest.mark.parametrize(
    ("algorithm", "supports", "message"),
    [
        (SCAFFOLD_OF_ONE, None, "scaffold corrects local gradients"),
        (GREEDY, None, "fedbuff needs each visit's mean training loss"),
        (SCAFFOLD_OF_ONE, "needs_loss", "visit.offset"),
        (SCAFFOLD_OF_ONE, "needs_loss, corrects_gradients_not", "visit.offset"),
        (GREEDY, "", "fedbuff needs each visit's mean training loss"),
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


@pytest.mark.parametrize(("protocol", "theirs"), [(None, "none"), ("0.9", "'0.9'"), ("1.1", "'1.1'")])
def test_a_client_of_another_protocol_gets_one_line_and_no_work(protocol, theirs, tmp_path):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=1), clients=1) as server:
        new = server.peer(server.enrolment_token)
        peer = server.enrol()
        visit = peer.check_in()
        for other in (new, peer):
            del other.http.headers["Offbeat-Protocol"]
            if protocol is not None:
                other.http.headers["Offbeat-Protocol"] = protocol
        answers = [peer.http.post("/v1/checkin", json={}), new.http.post("/v1/enrol", json={})]
        for answer in answers:
            assert kind_of(answer, 422) == "not-supported"
            line = answer.json()["detail"]
            assert line.startswith(f"this server speaks protocol 1.0, the client {theirs}")
            assert line.endswith(": use the same version of Offbeat for both")
            assert line.isprintable()
        # What it has trained already counts.
        answer = peer.put(visit, body_of(torch.ones(LENGTH)), params={"checkin": "true"}).json()
        assert (answer["receipt"]["counted"], answer["next"]) == (True, None)


def test_clients_without_abilities_take_part_where_none_is_needed(server):
    peer = server.enrol()
    del peer.http.headers["Offbeat-Supports"]
    visit = peer.check_in()
    assert (visit["corrects_gradients"], visit["needs_loss"]) == (False, False)
    answer = peer.put(visit, body_of(torch.ones(LENGTH)), params={"checkin": "true"}).json()
    assert answer["receipt"]["counted"]
    assert answer["next"]["visit"] is not None


@pytest.mark.parametrize(("header", "names"), [(None, {""}), ("a, evaluate ,b", {"a", "evaluate", "b"})])
def test_names_in_the_header(header, names):
    assert supported(header) == names
