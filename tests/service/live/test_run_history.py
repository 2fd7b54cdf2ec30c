import itertools
import math
import shutil

import pytest

from offbeat.algorithms import FedAsync, FedBuff
from offbeat.coordinator import Receipt, RecordedCall
from offbeat.service.live import run_history
from offbeat.service.live.run_history import RunHistory
from tests.service.conftest import running
from tests.service.http_client import ONES

NEVER = 10**9


class Coordinator:
    """A coordinator whose visits all have the same receipt."""

    def __init__(self):
        self.algorithm = self.visits = self
        self.version = 0
        self.staleness = 0
        self.counts = True

    def receipt(self, _client, _visit):
        return Receipt(self.counts, self.staleness, True)


def receive(now):
    return RecordedCall("receive", {"now": now, "client": 0, "visit": 0})


def test_each_new_version_is_noted_once_with_its_time():
    history, coordinator = RunHistory(), Coordinator()
    for now, version in ((1.0, 0), (2.5, 1), (3.0, 1), (4.25, 2)):
        coordinator.version = version
        history.note(receive(now), coordinator)
    assert history.between(0, NEVER)["versions"] == [[2.5, 1], [4.25, 2]]


def test_the_staleness_of_counted_updates_is_counted():
    history, coordinator = RunHistory(), Coordinator()
    for coordinator.staleness, coordinator.counts in ((0, True), (3, True), (3, True), (3, False), (63, True)):
        history.note(receive(1.0), coordinator)
    assert history.staleness == {0: 1, 3: 2, 63: 1}


def test_a_large_staleness_is_counted_to_six_bits():
    history, coordinator = RunHistory(), Coordinator()
    for coordinator.staleness in (64, 65, 66, 1_000_000):
        history.note(receive(1.0), coordinator)
    # 1,000,000 = 0b11110100001001000000, of which the first six bits are 111101.
    assert history.staleness == {64: 2, 66: 1, 0b111101 << 14: 1}


def test_the_history_of_a_long_run_is_thinned_evenly():
    history, coordinator = RunHistory(), Coordinator()
    total = 10 * run_history.MOST_VERSIONS
    for coordinator.version in range(1, total + 1):
        history.note(receive(float(coordinator.version)), coordinator)
    versions = [point.version for point in history.versions]
    assert run_history.MOST_VERSIONS / 2 <= len(versions) <= run_history.MOST_VERSIONS
    assert {second - first for first, second in itertools.pairwise(versions)} == {16}
    assert versions[-1] > total - 16


def test_evaluations_are_bounded_and_hold_finite_numbers():
    history = RunHistory()
    history.note_evaluation(4, {"version": 4, "accuracy": 0.5, "loss": math.nan, "note": "x", "ok": True})
    history.note_evaluation(5, {"loss": math.inf})
    assert history.between(0, NEVER)["evaluations"] == [[4, {"accuracy": 0.5}]]
    for version in range(3 * run_history.MOST_EVALUATIONS):
        history.note_evaluation(version, {"accuracy": 1})
    assert len(history.evaluations) <= run_history.MOST_EVALUATIONS
    assert history.evaluations[-1].version >= 3 * run_history.MOST_EVALUATIONS - 2


def test_the_evaluations_of_a_long_run_are_thinned_evenly_and_the_newest_is_kept():
    history = RunHistory()
    total = 10 * run_history.MOST_EVALUATIONS
    for version in range(3, 3 * total + 1, 3):  # on the server and on clients in turn
        history.note_evaluation(version, {"accuracy": 0.5})
        history.note_evaluation(version, {"client_accuracy": 0.5})
        assert history.evaluations[-1].version == version
    assert len(history.evaluations) <= run_history.MOST_EVALUATIONS
    for name in ("accuracy", "client_accuracy"):
        versions = [one.version for one in history.evaluations if name in one.values]
        steps = [second - first for first, second in itertools.pairwise([0, *versions])]
        assert max(steps) <= 3 * 64  # of 20,480 versions at least 320, also at the beginning


def test_what_lies_between_two_numbers_is_neither_missed_nor_repeated():
    history, coordinator = RunHistory(), Coordinator()
    for coordinator.version in (1, 2, 3):
        history.note(receive(float(coordinator.version)), coordinator)
        history.note_evaluation(coordinator.version, {"accuracy": 0.1})
    cuts = [0, 2, 3, 6]
    parts = [history.between(begin, end) for begin, end in itertools.pairwise(cuts)]
    whole = history.between(0, 6)
    for name in ("versions", "evaluations"):
        assert [entry for part in parts for entry in part[name]] == whole[name]
        assert len(whole[name]) == 3


@pytest.mark.parametrize("make", [lambda: FedBuff(buffer_size=2, concurrency=3), lambda: FedAsync(concurrency=3)])
def test_a_killed_server_finds_its_history_again(make, tmp_path):
    with running(tmp_path / "server", make, checkpoint_seconds=1e6) as server:
        peers = [server.enrol() for _ in range(3)]
        visits = [peer.check_in() for peer in peers]
        for _ in range(2):  # of three clients each, so that staleness differs
            for number, peer in enumerate(peers):
                peer.send(visits[number], ONES)
                visits[number] = peer.check_in()
            if _ == 0:
                server.checkpoint()
        history = server.service.engine.run.history
        expected = history.state_dict()
        assert sum(history.staleness.values()) == 6
        assert len(history.versions) == server.service.engine.coordinator.algorithm.version > 2
        shutil.copytree(server.folder, tmp_path / "killed")
    with running(tmp_path / "killed", make) as server:
        assert server.service.engine.run.history.state_dict() == expected
