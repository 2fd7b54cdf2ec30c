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
    server.beat["lease_seconds"] = 1.5
    began = time.monotonic()
    with Heartbeat(connection, 4, 1.5) as heartbeat:
        until(lambda: len(server.paths("POST")) >= 2)
        assert 1.0 <= time.monotonic() - began < 1.5
    assert heartbeat.wanted
    assert set(server.paths("POST")) == {PATH}
    assert server.heard[0][2]["Authorization"] == "Bearer obc_1"


def test_a_lease_of_any_length_is_waited_for(server, connection):
    with Heartbeat(connection, 4, 1e300) as heartbeat:
        time.sleep(0.1)
        assert any(thread.name == "heartbeat 4" for thread in threading.enumerate())
    assert heartbeat.wanted


def test_heartbeats_end_with_the_context(server, connection):
    with Heartbeat(connection, 4, 0.3):
        until(lambda: server.heard)
    count = len(server.heard)
    time.sleep(0.3)
    assert len(server.heard) == count


@pytest.mark.parametrize("lease_seconds", [600.0, None])
def test_short_work_sends_no_heartbeat(server, connection, lease_seconds):
    with Heartbeat(connection, 4, lease_seconds):
        pass
    assert server.heard == []


def test_the_last_answer_sets_the_lease(server, connection):
    server.beat["lease_seconds"] = 600.0
    with Heartbeat(connection, 4, 0.3):
        until(lambda: server.heard)
        time.sleep(0.3)
    assert len(server.heard) == 1


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
