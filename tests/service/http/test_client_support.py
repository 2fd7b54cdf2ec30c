"""A client that lacks what the algorithm needs gets no work, and one line that says why."""

import pytest
import torch

from offbeat.algorithms import SCAFFOLD
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import kind_of
from tests.simulation.test_simulator_contract import Greedy

ONES = torch.ones(LENGTH)


def scaffold():
    return SCAFFOLD(cohort=1)


def greedy():
    return Greedy(buffer_size=1, concurrency=1)


def saying(peer, supports):
    """Make a peer say what it can do; None for nothing, as a client of protocol 1.1 does."""
    peer.http.headers.pop("Offbeat-Supports", None)
    if supports is not None:
        peer.http.headers["Offbeat-Supports"] = supports
    return peer


@pytest.mark.parametrize(
    ("make", "supports", "message"),
    [
        (scaffold, None, "scaffold needs a client of protocol 1.2 or newer: upgrade this client's Offbeat"),
        (greedy, None, "fedbuff needs a client of protocol 1.2 or newer: upgrade this client's Offbeat"),
        (scaffold, "needs_loss", "visit.offset"),
        (scaffold, "needs_loss, corrects_gradients_not", "visit.offset"),
        (greedy, "", "fedbuff needs each visit's mean training loss"),
    ],
)
def test_a_client_that_cannot_do_the_work_is_refused(make, supports, message, tmp_path):
    with running(tmp_path / "server", make) as server:
        peer = saying(server.enrol(), supports)
        for wait_seconds in (0.0, 1.0):
            answer = peer.http.post("/v1/checkin", json={"wait_seconds": wait_seconds})
            assert kind_of(answer, 422) == "not-supported"
            assert message in answer.json()["detail"]
        statistics = server.service.engine.coordinator.statistics
        assert (statistics.assigned, len(server.service.engine.waiting)) == (0, 0)
        assert saying(peer, "corrects_gradients,needs_loss").check_in() is not None


def test_old_clients_take_part_where_nothing_new_is_needed(server):
    peer = saying(server.enrol(), None)
    visit = peer.check_in()
    assert (visit["corrects_gradients"], visit["needs_loss"]) == (False, False)
    answer = peer.put(visit, body_of(ONES), params={"checkin": "true"}).json()
    assert answer["receipt"]["counted"]
    assert answer["next"]["visit"] is not None


def test_a_visit_names_its_needs(tmp_path):
    for make, needs in ((scaffold, (True, False)), (greedy, (False, True))):
        with running(tmp_path / make.__name__, make) as server:
            visit = server.enrol().check_in()
            assert (visit["corrects_gradients"], visit["needs_loss"]) == needs


def test_an_update_counts_whose_client_cannot_do_the_next_visit(tmp_path):
    with running(tmp_path / "server", scaffold, clients=1) as server:
        peer = server.enrol()
        visit = peer.check_in()
        answer = saying(peer, "needs_loss").put(visit, body_of(ONES), params={"checkin": "true"}).json()
        assert answer == {"receipt": {"counted": True, "staleness": 0, "new_version": True}, "next": None}
        assert server.service.engine.coordinator.statistics.assigned == 1
