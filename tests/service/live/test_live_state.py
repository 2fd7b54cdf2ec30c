import json

import pytest
import torch

from offbeat.algorithms import FedAsync, FedAvg, FedBuff
from offbeat.service.live.live_state import live_state, participation
from tests.algorithms.test_whole_contract import FedPlain
from tests.service.conftest import running
from tests.service.http_client import ONES


def state_of(server):
    return json.loads(json.dumps(live_state(server.service), allow_nan=False))


def test_the_state_of_a_run(tmp_path):
    make = lambda: FedBuff(buffer_size=2, concurrency=3)  # noqa: E731
    with running(tmp_path / "server", make, lease_seconds=60.0, max_staleness=4, stop_versions=9) as server:
        first, second, third = (server.enrol(name=name) for name in ("a", "b", "c"))
        slow = third.check_in()
        for peer in (first, second, first):
            peer.send(peer.check_in(), ONES)
        assert server.peer("oba_wrong").http.get("/v1/status").status_code == 401
        state = state_of(server)
    status = {"algorithm": "fedbuff", "version": 1, "counted": 3, "enrolled": 3, "clients": 5, "assigned": 4}
    assert status.items() <= state["status"].items()
    assert (state["status"]["stop_versions"], state["lease_seconds"], state["allowed_staleness"]) == (9, 60.0, 4)
    assert state["buffer"] == {"count": 1, "size": 2, "sealed": 0}
    assert state["staleness"] == [[0, 3]]
    assert state["refusals"] == {"unknown-token": 1}
    (visit,) = state["visits"]["first"]
    assert state["visits"]["total"] == 1
    assert (visit["client"], visit["name"], visit["visit"], visit["staleness"]) == (2, "c", slow["number"], 1)
    # Of the three clients, two, one and no updates have counted: (−2 · 0 + 0 · 1 + 2 · 2) / (3 · 3).
    assert state["participation"] == {"curve": [[0, 2], [1, 1], [2, 0]], "gini": 4 / 9, "without": 1}
    assert 0 < visit["lease_until"] <= server.service.engine.run.now + 60
    assert visit["lease_from"] == pytest.approx(visit["lease_until"] - 60.0)


@pytest.mark.parametrize(
    ("make", "size"), [(lambda: FedAvg(cohort=3), 3), (lambda: FedAsync(concurrency=2), None)], ids=["rounds", "none"]
)
def test_the_size_of_the_buffer(make, size, tmp_path):
    with running(tmp_path / "server", make) as server:
        state = state_of(server)
    assert state["buffer"] == {"count": 0, "size": size, "sealed": 0}
    assert state["status"]["stop_versions"] is state["lease_seconds"] is state["allowed_staleness"] is None


def test_an_algorithm_without_components_is_served(tmp_path):
    with running(tmp_path / "server", FedPlain) as server:
        peer = server.enrol()
        receipt = peer.send(peer.check_in(), ONES)
        assert (receipt["counted"], receipt["new_version"]) == (True, True)
        server.checkpoint()
        state = state_of(server)
    assert state["buffer"] == {"count": 0, "size": None, "sealed": 0}
    with running(tmp_path / "server", FedPlain) as server:
        torch.testing.assert_close(server.service.engine.coordinator.algorithm.model, -0.1 * ONES)


def test_the_age_of_a_lease_is_not_known_without_one_and_at_the_end_of_its_visit(tmp_path):
    for seconds in ({"lease_seconds": None}, {"lease_seconds": 60.0, "max_visit_seconds": 40.0}):
        with running(tmp_path / str(seconds["lease_seconds"]), **seconds) as server:
            assert server.enrol().check_in()
            (visit,) = state_of(server)["visits"]["first"]
        assert visit["lease_from"] is None


def test_of_many_visits_those_are_shown_whose_leases_end_first(tmp_path):
    make = lambda: FedBuff(buffer_size=50, concurrency=40)  # noqa: E731
    with running(tmp_path / "server", make, clients=40, lease_seconds=60.0, model=torch.zeros(6)) as server:
        peers = [server.enrol() for _ in range(25)]
        visits = [peer.check_in() for peer in peers]
        assert all(visits)
        shown = state_of(server)["visits"]
    assert shown["total"] == 25
    assert [visit["client"] for visit in shown["first"]] == list(range(20))


@pytest.mark.parametrize(
    ("counts", "gini"),
    [
        ([3, 3, 3, 3], 0.0),
        ([0, 0, 0, 8], 3 / 4),  # 1 − 1/N
        # The mean absolute difference of 1, 2, 3 over all ordered pairs is 8/9; half of it over the mean 2.
        ([3, 1, 2], 8 / 9 / 2 / 2),
    ],
)
def test_the_gini_coefficient(counts, gini):
    assert participation(counts)["gini"] == pytest.approx(gini, abs=1e-12)


def test_the_curve_begins_with_the_busiest_client():
    assert participation([1, 5, 0, 3])["curve"] == [[0, 5], [1, 3], [2, 1], [3, 0]]
    assert participation([1, 5, 0, 3])["without"] == 1


def test_of_many_clients_the_curve_has_some_with_the_first_and_the_last():
    curve = participation(range(100_000))["curve"]
    assert 32 <= len(curve) <= 64
    assert curve[0] == [0, 99_999]
    assert curve[-1] == [99_999, 0]
    assert all(count == 99_999 - place for place, count in curve)


def test_before_the_first_update():
    assert participation([0, 0])["gini"] is None
    assert participation([]) == {"curve": [], "gini": None, "without": 0}
