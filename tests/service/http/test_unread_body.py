import torch

from tests.service.conftest import LENGTH, body_of

ONES = torch.ones(LENGTH)


def test_the_connection_closes_after_an_answer_that_comes_before_the_body(server):
    peer = server.enrol()
    visit = peer.check_in()
    long = bytes(3_000_000)
    for body in (long, iter([long])):
        assert peer.http.put("/v1/uploads/0", content=body).headers["connection"] == "close"
        assert "connection" not in peer.http.put("/v1/uploads/0", content=b"").headers
        assert "connection" not in peer.put(visit, body_of(ONES), sha256="0" * 64).headers
    assert peer.http.post("/v1/checkin", content=long).headers["connection"] == "close"
    assert "connection" not in peer.http.get("/v1/models/0").headers
