import time

from tests.service.conftest import body_of, running
from tests.service.http_client import ONES, begin_upload, kind_of, line, lines


def test_a_next_token_may_come_first_over_many_connections(server):
    peer = server.enrol()
    for _ in range(5):
        token = peer.http.post("/v1/token").json()["token"]
        peer = server.peer(token)
        with lines(server, f"Bearer {token}", 12) as opened:
            for each in opened:
                each.begin("GET", "/v1/uploads/0")
            assert {each.answer().status_code for each in opened} == {404}


def test_the_update_of_a_client_that_is_revoked_during_the_upload_does_not_count(server):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    with line(server, peer) as opened:
        begin_upload(opened, peer, visit, body, end=len(body))
        opened.send(body[:50])
        time.sleep(0.1)
        assert server.admin.http.delete("/v1/clients/0").status_code == 204
        opened.send(body[50:])
        assert kind_of(opened.answer(), 401) == "revoked-token"
    assert server.service.engine.coordinator.statistics.counted == 0


def test_concurrent_enrolments_do_not_exceed_the_places(tmp_path):
    with running(tmp_path / "server", clients=4) as server:
        token = server.admin.http.post("/v1/enrolment-tokens", json={"uses": 6}).json()["token"]
        with lines(server, f"Bearer {token}", 10) as opened:
            for each in opened:
                each.begin("POST", "/v1/enrol", "Content-Type: application/json", length=2)
                each.send(b"{")
            for each in opened:
                each.send(b"}")
            answers = [each.answer() for each in opened]
        assert sorted(answer.json()["client"] for answer in answers if answer.status_code == 201) == [0, 1, 2, 3]
        assert {answer.status_code for answer in answers} == {201, 409}
        assert server.admin.http.get("/v1/status").json()["enrolled"] == 4


def test_each_kind_of_token_opens_its_own_routes(server):
    for path in ("/v1/status", "/metrics"):
        assert kind_of(server.peer(None).http.get(path), 401) == "no-token"
        assert kind_of(server.peer("oba_wrong").http.get(path), 401) == "unknown-token"
        assert kind_of(server.enrol().http.get(path), 403) == "foreign-token"
    assert kind_of(server.peer("x" * 10_000).http.post("/v1/checkin", json={}), 401) == "unknown-token"
    assert kind_of(server.admin.http.post("/v1/checkin", json={}), 403) == "foreign-token"
    assert kind_of(server.peer(None).http.post("/v1/enrol", json={}), 401) == "no-token"


def test_a_token_is_rotated_and_revoked(server):
    peer = server.enrol()
    other = server.peer(peer.http.post("/v1/token").json()["token"])
    assert peer.check_in() is not None
    assert other.check_in() is not None
    assert kind_of(peer.http.post("/v1/checkin", json={}), 401) == "unknown-token"
    assert server.admin.http.delete("/v1/clients/0").status_code == 204
    assert kind_of(other.http.post("/v1/checkin", json={}), 401) == "revoked-token"
    assert kind_of(server.admin.http.delete("/v1/clients/4"), 404) == "no-such-client"


def test_an_enrolment_token_ends_and_so_do_places(server):
    token = server.admin.http.post("/v1/enrolment-tokens", json={"uses": 1}).json()["token"]
    assert server.peer(token).http.post("/v1/enrol", json={}).status_code == 201
    assert kind_of(server.peer(token).http.post("/v1/enrol", json={}), 401) in ("revoked-token", "unknown-token")
    for _ in range(4):
        server.enrol()
    assert kind_of(server.peer(server.enrolment_token).http.post("/v1/enrol", json={}), 409) == "full"
