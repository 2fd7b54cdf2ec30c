"""Updates that come over several connections at once, and around the end of their visits."""

import math
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from offbeat.algorithms import FedBuff
from offbeat.algorithms.components.buffers.noisy_sum import noisy
from offbeat.coordinator.participation_limits import Participation
from offbeat.service.engine.privacy_status import PrivacySettings
from offbeat.service.front import front
from offbeat.service.internal.leader_channel import Unsent, busy
from offbeat.service.internal.questions import HandIn
from offbeat.service.refusal import Refusal
from offbeat.whole_numbers import Grid, WholeNumbers
from tests.service.conftest import body_of, running
from tests.service.http_client import (
    NANS,
    ONES,
    begin_upload,
    check_log,
    check_progress,
    kind_of,
    line,
    locked,
    put_at_once,
    put_in_pieces,
    snapshot,
    until,
)


class Gate:
    """Holds those who have checked a large body, until it is opened."""

    def __init__(self, check: Callable[..., None]) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self._check = check

    def __call__(self, *arguments: Any) -> None:
        self._check(*arguments)
        if not self.reached.is_set():
            self.reached.set()
            assert self.opened.wait(10)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Holds the first large body between its check and what comes after that."""
    made = Gate(front.check_norm)
    monkeypatch.setattr(front, "check_norm", made)
    return made


def test_a_large_body_is_checked_while_it_arrives(server, monkeypatch):
    peer = server.enrol()
    visit = peer.check_in()
    assert kind_of(put_in_pieces(peer, visit, body_of(NANS)), 422) == "not-finite"
    with monkeypatch.context() as patch:
        patch.delattr(front, "norm_of")
        assert put_in_pieces(peer, visit, body_of(ONES)).json()["receipt"]["counted"]
    ((_, norm),) = server.service.engine.history.norms.entries()
    assert norm == pytest.approx(ONES.norm().item() / 2)  # a visit has two steps


@pytest.mark.parametrize("more", [-4, 4])
def test_a_body_whose_size_changes_on_its_way_is_read_again(server, more):
    peer = server.enrol()
    visit, good = peer.check_in(), body_of(ONES)
    assert peer.put(visit, good[:10], head=peer.head(visit, good)).status_code == 202
    other = (good + bytes(4))[: len(good) + more]
    assert kind_of(peer.put(visit, other, offset=10, head=peer.head(visit, other)), 422) == "malformed-update"


def test_the_checked_bytes_are_applied_whatever_comes_over_another_connection(server, gate):
    peer, other = server.enrol(), server.enrol()
    visit, good, bad = peer.check_in(), body_of(ONES), body_of(NANS)
    with ThreadPoolExecutor(1) as pool, line(server, peer) as second:
        first = pool.submit(put_in_pieces, peer, visit, good)
        assert gate.reached.wait(10)
        # 104 bytes of NaN in two pieces, so that they go into the same file.
        begin_upload(second, peer, visit, bad, end=len(bad) - 1)
        second.send(bad[: len(bad) - 1])
        time.sleep(0.2)
        gate.opened.set()
        one, two = first.result(10), second.answer()
        assert {one.status_code, two.status_code} <= {200, 202, 409}
    if one.status_code == 200:
        check_log(server.folder)
    else:
        assert kind_of(peer.put(visit, bad), 422) == "not-finite"
        assert peer.send(visit, ONES)["counted"]
    check_progress(server, [other, peer, other])
    check_log(server.folder)
    last = server.service.engine.models.versions()
    assert server.service.engine.models.read(max(last)).isfinite().all()


def test_an_empty_rest_that_comes_during_the_check_gets_the_same_answer(server, gate):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(put_in_pieces, peer, visit, body)
        assert gate.reached.wait(10)
        assert peer.http.get("/v1/uploads/0").json()["offset"] in (0, len(body))
        second = pool.submit(peer.put, visit, body, offset=len(body))
        time.sleep(0.2)
        gate.opened.set()
        answers = [first.result(10), second.result(10)]
    assert [answer.status_code for answer in answers if answer.status_code not in (200, 409, 503)] == []
    assert 200 in [answer.status_code for answer in answers]
    assert server.service.engine.coordinator.statistics.counted == 1
    check_log(server.folder)
    check_progress(server, [peer])


def test_a_new_visit_may_begin_to_upload_while_the_old_one_is_checked(server, gate):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(put_in_pieces, peer, visit, body)
        assert gate.reached.wait(10)
        assert peer.http.post("/v1/visits/0/give-up").status_code == 204
        again = peer.check_in()
        assert again["number"] == 1
        assert peer.put(again, body[:10], head=peer.head(again, body)).status_code == 202
        gate.opened.set()
        assert first.result(10).status_code < 500
    assert peer.put(again, body, offset=10, head=peer.head(again, body)).json()["receipt"]["counted"]
    check_log(server.folder)


def test_late_bytes_do_not_replace_acknowledged_ones(tmp_path):
    one, two = body_of(ONES), body_of(2 * ONES)
    with running(tmp_path / "server") as server:
        peer, other = server.enrol(), server.enrol()
        visit = peer.check_in()
        updates = server.folder / "updates"
        with ThreadPoolExecutor(2) as pool:
            with locked(server):
                first = pool.submit(put_in_pieces, peer, visit, one)
                until(lambda: list(updates.glob("0-0-*")) or first.done())
                time.sleep(0.1)
                second = pool.submit(put_in_pieces, peer, visit, two)
                time.sleep(0.3)
            answers = [first.result(10), second.result(10)]
        assert answers[0].status_code == 200
        assert kind_of(answers[1], 409) == "other-upload"
        check_log(server.folder)
        check_progress(server, [other])
    with running(tmp_path / "server") as server:
        assert server.service.engine.coordinator.statistics.counted == 2


def test_the_same_small_upload_over_many_connections_counts_once(server):
    peer, other = server.enrol(), server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    answers = put_at_once(server, peer, visit, [body] * 20)
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.text for answer in answers}) == 1
    assert server.service.engine.coordinator.statistics.counted == 1
    check_progress(server, [other])
    check_log(server.folder)


def test_of_different_updates_of_one_visit_at_once_one_counts(server):
    peer = server.enrol()
    visit = peer.check_in()
    answers = put_at_once(server, peer, visit, [body_of(number * ONES) for number in range(10)])
    assert sorted(answer.status_code for answer in answers) == [200] + 9 * [409]
    assert {answer.json()["kind"] for answer in answers if answer.status_code == 409} == {"other-upload"}
    assert server.service.engine.coordinator.statistics.counted == 1
    check_log(server.folder)


def test_an_upload_under_way_while_its_client_gives_up_counts_for_its_own_visit(server):
    peer = server.enrol()
    visit, body = peer.check_in(), body_of(ONES)
    with line(server, peer) as opened:
        begin_upload(opened, peer, visit, body, end=len(body))
        opened.send(body[:40])
        assert peer.http.post("/v1/visits/0/give-up").status_code == 204
        assert peer.http.post("/v1/visits/0/heartbeat").status_code == 200
        again = peer.check_in()
        assert again["number"] == 1
        opened.send(body[40:])
        answer = opened.answer()
    # The old visit's work is over with the new one: it is acknowledged, and unused.
    assert answer.json()["receipt"]["counted"] is False
    assert peer.send(again, ONES)["counted"]
    check_log(server.folder)


def test_an_update_counts_although_its_lease_lapses_during_the_upload(tmp_path):
    with running(tmp_path / "server", lease_seconds=0.2) as server:
        peer = server.enrol()
        visit, body = peer.check_in(), body_of(ONES)
        with line(server, peer) as opened:
            begin_upload(opened, peer, visit, body, end=len(body))
            opened.send(body[:40])
            until(lambda: server.service.engine.coordinator.statistics.lost == 1)
            opened.send(body[40:])
            assert opened.answer().json()["receipt"]["counted"]
        assert server.service.engine.coordinator.statistics.lost == 0


def test_a_run_that_ends_during_an_upload_acknowledges_it_as_unused(tmp_path):
    with running(tmp_path / "server", stop_versions=1) as server:
        peers = [server.enrol() for _ in range(3)]
        visits = [peer.check_in() for peer in peers]
        body = body_of(ONES)
        with line(server, peers[0]) as small, line(server, peers[0]) as late:
            begin_upload(small, peers[0], visits[0], body, end=len(body))
            small.send(body[:40])
            for peer, visit in zip(peers[1:], visits[1:], strict=True):
                peer.send(visit, ONES)
            before = snapshot(server)[:2]
            small.send(body[40:])
            assert small.answer().json()["receipt"]["counted"] is False
            late.begin("POST", "/v1/visits/0/give-up")
            assert late.answer().status_code == 204
        assert peers[0].send(visits[0], 2 * ONES)["counted"] is False
        assert snapshot(server)[1]["counted"] == before[1]["counted"] == 2
        assert server.admin.http.get("/v1/status").json()["version"] == 1


def bytes_of_updates(folder):
    return sum(path.stat().st_size for name in ("updates", "partial") for path in (folder / name).iterdir())


@pytest.mark.parametrize("in_pieces", [False, True], ids=["small", "large"])
def test_a_refused_update_takes_no_room_on_the_disk(in_pieces, server):
    peer = server.enrol()
    visit = peer.check_in()
    put = put_in_pieces if in_pieces else lambda peer, visit, body: peer.put(visit, body)
    assert kind_of(put(peer, visit, body_of(NANS)), 422) == "not-finite"
    before = bytes_of_updates(server.folder)
    for _ in range(20):
        assert kind_of(put(peer, visit, body_of(NANS)), 422) == "not-finite"
    assert before == bytes_of_updates(server.folder)
    check_progress(server, [peer])


@pytest.mark.parametrize("refusal", [Unsent, Refusal])
def test_a_large_file_stays_only_where_the_leader_may_have_it(refusal, server, monkeypatch):
    ask = server.front.leader.ask

    async def lose(question):
        if isinstance(question, HandIn):
            raise busy("lost", refusal)
        return await ask(question)

    peer = server.enrol()
    monkeypatch.setattr(server.front.leader, "ask", lose)
    assert kind_of(put_in_pieces(peer, peer.check_in(), body_of(ONES)), 503) == "busy"
    assert len(list((server.folder / "updates").iterdir())) == (refusal is Refusal)


@pytest.mark.parametrize("pieces", [False, True])
def test_a_private_update_that_is_not_finite_counts_as_zeros_and_its_norm_is_not_kept(tmp_path, pieces):
    """A refusal would tell that its client's training diverged; so would a limit made of other clients' norms."""

    def make():
        algorithm = FedBuff(buffer_size=2, concurrency=4)
        grid = Grid(clip_norm=2.0**20, largest=2**20)  # of step 1
        whole = lambda update, *scales: WholeNumbers(update.vector, grid, *scales, bytes(32))  # noqa: E731
        algorithm.wrap(noisy(step=grid.step, whole=whole, noise=None, least=1))
        return algorithm

    options = {"participation": Participation(5), "privacy": PrivacySettings(0.0, 1e-5), "max_update_norm": math.inf}
    with running(tmp_path / "server", make, checkpoint_seconds=1e6, **options) as server:
        first, second = server.enrol(), server.enrol()
        visit = first.check_in()
        answer = put_in_pieces(first, visit, body_of(NANS)) if pieces else first.put(visit, body_of(NANS))
        assert answer.json()["receipt"]["counted"]
        assert kind_of(second.put(second.check_in(), b"12345"), 422) == "malformed-update"
        second.send(second.check_in(), 1e3 * ONES)
        algorithm = server.service.engine.coordinator.algorithm
        assert torch.equal(algorithm.model, -500 * ONES)
        assert server.service.engine.history.norms.entries() == []
        server.admin.http.get("/v1/status")
        shutil.copytree(tmp_path / "server", tmp_path / "killed")
    options["participation"] = Participation(5)
    with running(tmp_path / "killed", make, **options) as server:
        assert torch.equal(server.service.engine.coordinator.algorithm.model, -500 * ONES)
        assert server.service.engine.history.norms.entries() == []
