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
