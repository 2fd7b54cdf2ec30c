import threading
import time

import pytest
from offbeat_client.http.heartbeat import Heartbeat

PATH = "/v1/visits/4/heartbeat"


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_three_heartbeats_a_lease(server, connection):
    server.beat["lease_seconds"] = 0.6
    began = time.monotonic()
    with Heartbeat(connection, 4, 0.6) as heartbeat:
        until(lambda: len(server.paths("POST")) >= 2)
        assert 0.4 <= time.monotonic() - began < 0.6
        server.beat["lease_seconds"] = 600.0  # the last answer sets the lease
        until(lambda: len(server.heard) == 3)
        time.sleep(0.3)
    assert heartbeat.wanted
    assert server.paths("POST") == [PATH] * 3
    assert server.heard[0][2]["Authorization"] == "Bearer obc_1"


@pytest.mark.parametrize("lease_seconds", [600.0, None, 1e300])
def test_short_work_sends_no_heartbeat(server, connection, lease_seconds):
    with Heartbeat(connection, 4, lease_seconds):
        time.sleep(0.05)
        assert any(thread.name == "heartbeat 4" for thread in threading.enumerate())
    assert server.heard == []


def test_the_visit_becomes_urgent(server, connection):
    server.beat["urgent"] = True
    urgent = threading.Event()
    with Heartbeat(connection, 4, 0.3, urgent) as heartbeat:
        assert urgent.wait(20)
    assert heartbeat.wanted


@pytest.mark.parametrize("known", [True, False])
def test_the_update_becomes_unwanted(server, connection, fault, known):
    server.beat["wanted"] = False
    if not known:
        server.faults["POST", PATH] = [fault(404, "no-such-visit")]
    urgent = threading.Event()
    with Heartbeat(connection, 4, 0.3, urgent) as heartbeat:
        assert urgent.wait(20)
        time.sleep(0.3)
    assert not heartbeat.wanted
    assert len(server.heard) == 1


def test_a_lost_heartbeat_is_harmless(server, connection, fault):
    server.beat["lease_seconds"] = 0.3
    server.faults["POST", PATH] = [fault(before_answer=True), fault(503, "busy"), fault(401, "expired-token")]
    with Heartbeat(connection, 4, 0.3) as heartbeat:
        until(lambda: len(server.heard) >= 4)
    assert heartbeat.wanted
