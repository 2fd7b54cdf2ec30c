"""Uploads for visits that are over: what is known of them, and what is not."""

import torch

from offbeat.algorithms import FedAsync
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import kind_of

ONES = torch.ones(LENGTH)
UNKNOWN = {"counted": None, "staleness": None, "new_version": None}


def test_an_older_visit_is_unknown_and_the_last_counted_one_takes_no_other_bytes(tmp_path):
    def make():
        return FedAsync(concurrency=2)

    with running(tmp_path / "server", make, max_staleness=0) as server:
        peer, other = server.enrol(), server.enrol()
        visits = []
        for number in range(2):
            visits.append(peer.check_in())
            assert peer.send(visits[number], ONES)["counted"]
        visits.append(peer.check_in())
        assert other.send(other.check_in(), ONES)["counted"]  # so the third comes too late
        assert not peer.send(visits[2], ONES)["counted"]
        before = server.service.engine.journal.number
        answers = [[peer.put(visit, body_of(factor * ONES)) for visit in visits] for factor in (1, 2)]
        assert server.service.engine.journal.number == before
        token = peer.http.headers["authorization"].split()[1]
    same, others = answers
    assert same[0].json()["receipt"] == others[0].json()["receipt"] == UNKNOWN
    assert same[1].json()["receipt"]["counted"] is True
    assert same[2].json()["receipt"]["counted"] is False
    assert [kind_of(answer, 409) for answer in others[1:]] == ["other-upload", "other-upload"]
    with running(tmp_path / "server", make, max_staleness=0) as server:
        peer = server.peer(token)
        assert peer.http.get("/v1/uploads/0").json() == {"wanted": False, "offset": 0, "receipt": UNKNOWN}
        assert kind_of(peer.put(visits[1], body_of(2 * ONES)), 409) == "other-upload"
        assert peer.put(visits[1], body_of(ONES)).json() == same[1].json()
