"""Leases and late updates."""

import json
import math

import pytest
import torch

from offbeat.algorithms import FedAvg, FedBuff, FedLuck
from offbeat.coordinator import Coordinator
from tests.coordinator.conftest import PLAN, Periodic, everybody_present, make, receive


def limited(record=None, **settings):
    settings = {"lease_seconds": 10.0, "max_visit_seconds": 25.0} | settings
    algorithm = FedBuff(buffer_size=2, concurrency=1)
    return Coordinator(algorithm, torch.zeros(2), clients=3, local=PLAN, seed=5, record=record, **settings)


def test_a_lease_is_not_renewed_beyond_the_longest_duration():
    coordinator = limited()
    coordinator.present(0.0, 1)
    (assignment,) = coordinator.assign(0.0)
    assert (assignment.lease_until, assignment.visit_until) == (10.0, 25.0)
    ends = []
    for now in (9.0, 18.0, 24.0):
        assert coordinator.renew(now, 1, 0)
        assert coordinator.visits.assignment(1) is not None
        ends.append(coordinator.visits.assignment(1).lease_until)
    assert ends == [19.0, 25.0, 25.0]
    coordinator.lapse(25.0)
    assert not coordinator.visits.has_slot(1)
    assert not coordinator.renew(26.0, 1, 0)


@pytest.mark.parametrize(
    ("settings", "lease_until"),
    [
        ({"lease_seconds": 30.0}, 25.0),
        ({"lease_seconds": float("inf")}, 25.0),
        ({"max_visit_seconds": float("inf")}, 10.0),
    ],
)
def test_the_shorter_of_lease_and_longest_duration_holds(settings, lease_until):
    coordinator = limited(**settings)
    coordinator.present(0.0, 1)
    (assignment,) = coordinator.assign(0.0)
    assert assignment.lease_until == lease_until
    assert coordinator.next_lapse() == lease_until


def test_a_replay_and_a_checkpoint_know_how_long_a_visit_may_last():
    calls = []
    first = limited(calls.append)
    first.present(0.0, 1)
    first.assign(0.0)
    first.renew(9.0, 1, 0)
    saved = first.state_dict()
    saved = {**saved, "visits.open": json.loads(json.dumps(saved["visits.open"]))}
    count = len(calls)
    first.renew(18.0, 1, 0)
    first.lapse(25.0)
    first.present(25.0, 2)
    first.assign(25.0)
    replayed, restored = limited(), limited()
    restored.load_state_dict(saved)
    for coordinator, rest in ((replayed, calls), (restored, calls[count:])):
        for call in rest:
            coordinator.replay(call)
        assert coordinator.visits.has_slot(2)
        assert not coordinator.visits.has_slot(1)
        assert coordinator.visits.assignment(2) == first.visits.assignment(2)


def test_a_lapsed_lease_frees_the_slot_but_the_late_update_counts_in_full():
    coordinator = make(FedBuff(buffer_size=1, concurrency=1), lease_seconds=5.0)
    everybody_present(coordinator)
    (slow,) = coordinator.assign(0.0)
    assert slow.lease_until == 5.0
    assert coordinator.assign(1.0) == []
    coordinator.drop(5.0, slow.client, slow.visit)
    assert coordinator.statistics.lost == 1
    (other,) = coordinator.assign(5.0)
    assert other.client != slow.client
    assert receive(coordinator, 9.0, slow, vector=torch.tensor([2.0, 0.0, 0.0])) == (True, 0, True)
    assert coordinator.statistics.lost == 0
    assert coordinator.algorithm.model.tolist() == [-2.0, 0.0, 0.0]


def test_without_a_lease_a_slot_is_kept_for_ever():
    coordinator = make(FedBuff(concurrency=1))
    everybody_present(coordinator)
    (assignment,) = coordinator.assign(0.0)
    assert assignment.lease_until == math.inf


def test_the_leases_of_a_periodic_algorithm_do_not_tick_it():
    algorithm = Periodic(buffer_size=100, concurrency=2)
    coordinator = make(algorithm, lease_seconds=5.0)
    everybody_present(coordinator)
    coordinator.assign(0.0)
    coordinator.lapse(5.0)
    assert (algorithm.ticks, coordinator.statistics.lost) == (0, 2)


def test_a_round_waits_for_the_lease_that_ends_last_though_another_was_renewed_after_it():
    coordinator = Coordinator(
        FedAvg(cohort=3), torch.zeros(2), clients=3, local=PLAN, lease_seconds=60.0, max_visit_seconds=100.0
    )
    coordinator.present(0.0, 0)
    coordinator.assign(0.0)
    coordinator.present(45.0, 1)
    (second,) = coordinator.assign(45.0)  # until 105
    assert coordinator.renew(50.0, 0, 0)  # until 100, the longest that its visit may last
    coordinator.lapse(100.0)
    assert (coordinator.visits.has_slot(0), coordinator.visits.has_slot(1)) == (False, True)
    assert receive(coordinator, 101.0, second, vector=torch.ones(2)).counted


def test_the_update_of_an_open_visit_counts_unless_it_is_too_stale():
    coordinator = make(FedBuff(buffer_size=1, concurrency=2), max_staleness=0)
    everybody_present(coordinator)
    first, second = coordinator.assign(0.0)
    assert coordinator.late_updates.counts(second)
    receive(coordinator, 1.0, first)
    assert not coordinator.late_updates.counts(second)  # a version too old
    assert list(coordinator.visits.open_assignments()) == [second]
    assert coordinator.visits.has_slot(second.client)
    assert not coordinator.visits.has_slot(first.client)


@pytest.mark.parametrize(
    ("algorithm", "settings", "expected"),
    [
        (FedBuff(), {}, False),
        (FedBuff(), {"max_staleness": 3}, True),
        (FedAvg(cohort=2), {}, True),  # an update comes too late for its round
        (FedLuck(), {}, False),
    ],
)
def test_algorithms_that_may_refuse_an_update(algorithm, settings, expected):
    assert make(algorithm, **settings).late_updates.may_refuse is expected
