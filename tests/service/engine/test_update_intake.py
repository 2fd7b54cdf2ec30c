"""Updates that are refused, unused or repeated."""

import math
import shutil
import sqlite3
from contextlib import closing

import torch

from offbeat.algorithms import FedAsync, FedLaAvg
from tests.service.conftest import LENGTH, Peer, body_of, running
from tests.service.http_client import check_log, check_progress, kind_of, put_in_pieces

ONES = torch.ones(LENGTH)


def stored_bytes(server):
    """Return how many bytes of updates lie in the server's folder and its log."""
    rooms = [server.folder / name for name in ("updates", "partial")]
    with closing(sqlite3.connect(server.folder / "offbeat.sqlite")) as database:
        (small,) = database.execute("SELECT total(length(body)) FROM bodies").fetchone()
    return small + sum(path.stat().st_size for room in rooms for path in room.iterdir())


def test_an_update_from_another_memory_leaves_nothing_however_often_it_comes(tmp_path):
    with running(tmp_path / "server", lambda: FedLaAvg(cohort=2), checkpoint_seconds=math.inf) as server:
        peers = [server.enrol() for _ in range(2)]
        visit = peers[0].check_in()
        peers[1].check_in()  # the round stays open
        for put in (Peer.put, put_in_pieces):
            for _ in range(10):
                assert kind_of(put(peers[0], visit, body_of(ONES), since=7), 422) == "lost-memory"
        assert stored_bytes(server) == 0
        assert peers[0].send(visit, ONES)["counted"]
        check_log(server.folder)


def test_an_update_that_does_not_count_leaves_nothing_and_its_digest_stays_known(tmp_path):

    def make():
        return FedAsync(concurrency=2)

    settings = {"max_staleness": 0, "checkpoint_seconds": math.inf}
    with running(tmp_path / "server", make, **settings) as server:
        peers = [server.enrol() for _ in range(2)]
        stale = [peer.check_in() for peer in peers]
        assert peers[0].send(stale[0], ONES)["counted"]
        before = stored_bytes(server)
        assert before > 0
        late = peers[1].put(stale[1], body_of(ONES)).json()
        assert not late["receipt"]["counted"]
        assert stored_bytes(server) == before

        stale = [peer.check_in() for peer in peers]
        assert peers[0].send(stale[0], ONES)["counted"]
        before = stored_bytes(server)
        answer = put_in_pieces(peers[1], stale[1], body_of(ONES))
        assert not answer.json()["receipt"]["counted"]
        assert stored_bytes(server) == before

        assert kind_of(peers[1].put(stale[1], body_of(2 * ONES)), 409) == "other-upload"
        token = peers[1].http.headers["authorization"].split()[1]
        check_log(server.folder)
        shutil.copytree(server.folder, tmp_path / "killed")
    with running(tmp_path / "killed", make, **settings) as server:
        peer = server.peer(token)
        assert kind_of(peer.put(stale[1], body_of(2 * ONES)), 409) == "other-upload"
        assert peer.put(stale[1], body_of(ONES)).json()["receipt"] == answer.json()["receipt"]


def test_a_refused_body_leaves_no_gap_between_others(server):
    peers = [server.enrol() for _ in range(3)]
    visits = [peer.check_in() for peer in peers]
    body = body_of(ONES)
    assert peers[0].put(visits[0], body).status_code == 200
    size = stored_bytes(server)
    assert peers[1].put(visits[1], body, steps=1, normaliser=0.0, examples=1).status_code in (200, 422)
    assert kind_of(peers[2].put(visits[2], body_of(math.nan * ONES)), 422) == "not-finite"
    assert stored_bytes(server) <= 2 * size
    check_progress(server, peers[:1])
    check_log(server.folder)


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
        before = server.service.engine.log_writer.number
        answers = [[peer.put(visit, body_of(factor * ONES)) for visit in visits] for factor in (1, 2)]
        assert server.service.engine.log_writer.number == before
        token = peer.http.headers["authorization"].split()[1]
    same, others = answers
    assert same[0].json()["receipt"] == others[0].json()["receipt"] == UNKNOWN
    assert same[1].json()["receipt"]["counted"] is True
    assert same[2].json()["receipt"]["counted"] is False
    assert [kind_of(answer, 409) for answer in others[1:]] == ["other-upload", "other-upload"]
    with running(tmp_path / "server", make, max_staleness=0) as server:
        peer = server.peer(token)
        state = peer.http.get("/v1/uploads/0").json()
        assert (state["wanted"], state["offset"], state["receipt"]) == (False, 0, UNKNOWN)
        assert kind_of(peer.put(visits[1], body_of(2 * ONES)), 409) == "other-upload"
        assert peer.put(visits[1], body_of(ONES)).json()["receipt"] == same[1].json()["receipt"]
