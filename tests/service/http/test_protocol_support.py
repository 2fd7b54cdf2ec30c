"""A client that lacks what the algorithm needs gets no work, and one line that says why."""

import pytest
import torch

from offbeat.algorithms import SCAFFOLD, FedBuff, FedDyn, LocalPlan
from offbeat.service.http.protocol_support import missing_support, supported
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import kind_of
from tests.simulation.test_simulator_contract import Greedy

FEDBUFF, GREEDY, SCAFFOLD_OF_ONE = FedBuff(), Greedy(buffer_size=1, concurrency=1), SCAFFOLD(cohort=1)
FEDDYN, PLAN = FedDyn(cohort=1), LocalPlan(steps=1, batch_size=1, lr=0.1)
UPGRADE = "needs a client of protocol 1.2 or newer: upgrade this client's Offbeat"


@pytest.mark.parametrize(
    ("algorithm", "supports", "message"),
    [
        (SCAFFOLD_OF_ONE, None, f"scaffold {UPGRADE}"),
        (GREEDY, None, f"fedbuff {UPGRADE}"),
        (SCAFFOLD_OF_ONE, "needs_loss", "visit.offset"),
        (SCAFFOLD_OF_ONE, "needs_loss, corrects_gradients_not", "visit.offset"),
        (GREEDY, "", "fedbuff needs each visit's mean training loss"),
        (SCAFFOLD_OF_ONE, "corrects_gradients,needs_loss", None),
        (GREEDY, " needs_loss", None),
        (FEDDYN, None, f"feddyn {UPGRADE}"),
        (
            FEDDYN,
            "corrects_gradients",
            "feddyn lets clients keep a regulariser, which needs protocol 1.5",
        ),
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


def test_old_clients_take_part_where_nothing_new_is_needed(server):
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
