"""What refused and unused uploads leave on the disk: nothing."""

import math
import shutil

import torch

from offbeat.algorithms import FedAsync, FedBuff, FedLaAvg
from tests.service.conftest import LENGTH, body_of, running
from tests.service.http_client import check_log, check_progress, kind_of, until

ONES = torch.ones(LENGTH)


def stored_bytes(server):
    """Return how many bytes of updates lie in the server's folder."""
    rooms = [server.folder / name for name in ("updates", "partial")]
    return sum(path.stat().st_size for room in rooms for path in room.iterdir())


def small(peer, visit, body, **changes):
    return peer.put(visit, body, **changes)


def large(peer, visit, body, **changes):
    """Upload a body such that it takes the way of large ones."""
    head = peer.head(visit, body, **changes)
    assert peer.put(visit, body[:10], head=head).status_code == 202
    return peer.put(visit, body, offset=10, head=head)


def test_an_update_from_another_memory_leaves_nothing_however_often_it_comes(tmp_path):
    with running(tmp_path / "server", lambda: FedLaAvg(cohort=2), checkpoint_seconds=math.inf) as server:
        peers = [server.enrol() for _ in range(2)]
        visit = peers[0].check_in()
        peers[1].check_in()  # the round stays open
        for put in (small, large):
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
        late = small(peers[1], stale[1], body_of(ONES)).json()
        assert not late["receipt"]["counted"]
        assert stored_bytes(server) == before

        stale = [peer.check_in() for peer in peers]
        assert peers[0].send(stale[0], ONES)["counted"]
        before = stored_bytes(server)
        answer = large(peers[1], stale[1], body_of(ONES))
        assert not answer.json()["receipt"]["counted"]
        assert stored_bytes(server) == before

        assert kind_of(small(peers[1], stale[1], body_of(2 * ONES)), 409) == "other-upload"
        token = peers[1].http.headers["authorization"].split()[1]
        check_log(server.folder)
        shutil.copytree(server.folder, tmp_path / "killed")
    with running(tmp_path / "killed", make, **settings) as server:
        peer = server.peer(token)
        assert kind_of(small(peer, stale[1], body_of(2 * ONES)), 409) == "other-upload"
        assert small(peer, stale[1], body_of(ONES)).json()["receipt"] == answer.json()["receipt"]


def test_a_refused_body_leaves_no_gap_between_others(server):
    peers = [server.enrol() for _ in range(3)]
    visits = [peer.check_in() for peer in peers]
    body = body_of(ONES)
    assert small(peers[0], visits[0], body).status_code == 200
    size = stored_bytes(server)
    assert small(peers[1], visits[1], body, steps=1, normaliser=0.0, examples=1).status_code in (200, 422)
    assert kind_of(small(peers[2], visits[2], body_of(math.nan * ONES)), 422) == "not-finite"
    assert stored_bytes(server) <= 2 * size
    check_progress(server, peers[:1])
    check_log(server.folder)


def test_many_bytes_are_checkpointed_before_it_is_time(tmp_path):
    with running(
        tmp_path / "server", lambda: FedBuff(buffer_size=2), checkpoint_seconds=1e6, checkpoint_bytes=1000
    ) as server:
        peers = [server.enrol() for _ in range(2)]
        (first,) = (server.folder / "checkpoints").iterdir()
        for _ in range(6):
            check_progress(server, peers)
        # Checkpoints take a twentieth of the time at most, so the next one comes the later the slower the disk is.
        until(lambda: not first.exists(), seconds=60.0)
        until(lambda: stored_bytes(server) < 1000, seconds=60.0)
        check_log(server.folder)


def test_one_client_has_no_more_than_two_large_bodies_checked_at_once(server):
    uploads = server.service.uploads
    peer = server.enrol()
    visit = peer.check_in()
    body = body_of(ONES)
    with uploads.holding(0):
        with uploads.holding(0):
            assert kind_of(peer.put(visit, body[:10], head=peer.head(visit, body)), 503) == "busy"
        assert large(peer, visit, body).json()["receipt"]["counted"]
    assert uploads._held == {}
