"""One token cannot take all connections of its address."""

import time
from contextlib import ExitStack

import pytest

from tests.service.conftest import running
from tests.service.http_client import kind_of, line

PLACES = 40
JSON = "Content-Type: application/json"


@pytest.fixture
def few(tmp_path):
    """A server that accepts 40 connections of one address, and so ten requests of one token at once."""
    with running(tmp_path / "server", connections_per_address=PLACES) as server:
        yield server


def hold_bodies(opened, peer):
    opened.begin("POST", "/v1/checkin", JSON, length=1000)


def hold_idle_connections(opened, peer):
    opened.begin("GET", "/v1/models/latest")
    assert opened.answer().status_code == 307


@pytest.mark.parametrize("hold", [hold_bodies, hold_idle_connections])
def test_a_client_that_holds_connections_keeps_no_newcomer_out(few, hold):
    peer = few.enrol()
    peer.check_in()
    with ExitStack() as stack:
        for _ in range(2 * PLACES):
            hold(stack.enter_context(line(few, peer)), peer)
        with line(few, few.peer(few.enrolment_token)) as newcomer:
            time.sleep(1.0)  # connections are counted four times a second
            newcomer.begin("POST", "/v1/enrol", JSON, length=2)
            newcomer.send(b"{}")
            assert newcomer.answer().status_code == 201


def test_a_request_above_the_limit_is_refused_until_another_ends(few):
    peer = few.enrol()
    with ExitStack() as stack:
        under_way = [stack.enter_context(line(few, peer)) for _ in range(10)]
        for opened in under_way:
            hold_bodies(opened, peer)
        time.sleep(0.3)
        answer = peer.http.post("/v1/checkin", json={})
        assert kind_of(answer, 429) == "too-many-requests"
        assert answer.headers["Retry-After"] == "1"
        assert few.enrol().http.post("/v1/checkin", json={}).status_code == 200
        under_way[0].send(b"{}".ljust(1000))
        assert under_way[0].answer().status_code == 200
        assert peer.http.post("/v1/checkin", json={}).status_code == 200
