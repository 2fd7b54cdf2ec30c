"""The longest duration of a visit: heartbeats do not keep a slot for ever."""

import math
import time

import pytest
import torch

from offbeat.algorithms import FedAvg, FedBuff
from tests.service.conftest import LENGTH, running

ONES = torch.ones(LENGTH)


def beat(peer, visit):
    answer = peer.http.post(f"/v1/visits/{visit['number']}/heartbeat")
    assert answer.status_code == 200, answer.text


def starve(peer, idle, seconds):
    """Let idle clients check in and send heartbeats, and return when another client gets work."""
    begun, visits = time.monotonic(), {}
    while time.monotonic() - begun < seconds:
        for number, other in enumerate(idle):
            visits[number] = other.check_in() or visits.get(number)
            if visits[number]:
                beat(other, visits[number])
        if (visit := peer.check_in(0.2)) is not None:
            return visit
    return None


@pytest.mark.parametrize("lease_seconds", [None, 0.4])
@pytest.mark.parametrize(
    "make", [lambda: FedBuff(buffer_size=1, concurrency=2), lambda: FedAvg(cohort=2)], ids=["fedbuff", "fedavg"]
)
def test_idle_clients_of_one_enrolment_token_do_not_starve_others(make, lease_seconds, tmp_path):
    settings = {"clients": 5, "lease_seconds": lease_seconds}
    with running(tmp_path / "server", make, max_visit_seconds=0.6, **settings) as server:
        idle = [server.enrol() for _ in range(4)]
        for client in idle[:2]:
            assert client.check_in() is not None
        visit = starve(server.enrol(), idle, 20.0)
        assert visit is not None


def test_without_a_longest_duration_heartbeats_keep_a_slot(tmp_path):
    make, settings = lambda: FedBuff(buffer_size=1, concurrency=2), {"clients": 5, "lease_seconds": 0.4}
    with running(tmp_path / "server", make, max_visit_seconds=math.inf, **settings) as server:
        idle = [server.enrol() for _ in range(4)]
        assert all(client.check_in() for client in idle[:2])
        assert starve(server.enrol(), idle, 2.0) is None


def test_an_update_that_comes_after_the_longest_duration_counts_while_it_is_wanted(tmp_path):
    with running(tmp_path / "server", lambda: FedBuff(buffer_size=1, concurrency=2), max_visit_seconds=0.3) as server:
        peer = server.enrol()
        visit = peer.check_in()
        time.sleep(0.6)
        assert server.service.engine.coordinator.statistics.lost == 1
        assert peer.send(visit, ONES)["counted"]
