"""Queries to a coordinator."""

import math

import pytest

from offbeat.algorithms import FedAvg, FedBuff, FedLuck
from tests.coordinator.conftest import everybody_present, make, receive


def test_statistics_of_staleness_are_over_the_counted_updates():
    coordinator = make(FedBuff(buffer_size=1, concurrency=3))
    everybody_present(coordinator)
    for number, assignment in enumerate(coordinator.assign(0.0)):
        assert receive(coordinator, 1.0, assignment).staleness == number
    assert coordinator.statistics.staleness_sum == 0 + 1 + 2
    assert coordinator.statistics.staleness_max == 2


def test_a_client_that_lost_the_answer_to_its_call_gets_its_assignment_again():
    coordinator = make(FedAvg(cohort=2), lease_seconds=5.0)
    everybody_present(coordinator)
    assignment, _ = coordinator.assign(0.0)
    assert coordinator.assignment(assignment.client) == assignment
    receive(coordinator, 1.0, assignment)
    assert coordinator.assignment(assignment.client) is None


def test_receipts_are_remembered_back_to_the_last_counted_visit():
    coordinator = make(FedBuff(buffer_size=1, concurrency=1), max_staleness=0)
    visits = []
    for visit in range(3):
        coordinator.present(visit, 0)
        (assignment,) = coordinator.assign(visit)
        visits.append(assignment)
        if visit == 1:
            receive(coordinator, 1.5, assignment)
        else:
            coordinator.drop(visit, 0, visit)  # and the update never comes
    assert [coordinator.remembers(0, visit) for visit in range(3)] == [False, True, True]
    assert [coordinator.has_counted(0, visit) for visit in range(3)] == [False, True, False]


def test_an_update_is_wanted_while_its_visit_is_open_and_not_too_stale():
    coordinator = make(FedBuff(buffer_size=1, concurrency=2), max_staleness=0)
    everybody_present(coordinator)
    first, second = coordinator.assign(0.0)
    assert coordinator.may_refuse
    assert coordinator.is_wanted(second.client, second.visit)
    assert not coordinator.is_wanted(second.client, second.visit + 1)
    assert list(coordinator.unfinished()) == [first, second]
    receive(coordinator, 1.0, first)
    assert not coordinator.is_wanted(first.client, first.visit)
    assert not coordinator.is_wanted(second.client, second.visit)  # a version too old
    assert coordinator.is_open(second.client)
    assert not coordinator.is_open(first.client)
    assert list(coordinator.unfinished()) == [second]


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
    assert make(algorithm, **settings).may_refuse is expected


def test_the_next_lapse_is_the_earliest_of_leases_and_the_algorithms_deadline():
    class Impatient(FedBuff):
        def deadline(self):
            return 6.0

    for kind, expected in ((FedBuff, 8.0), (Impatient, 6.0)):
        coordinator = make(kind(concurrency=2), lease_seconds=5.0)
        assert coordinator.next_lapse() == min(math.inf, 6.0 if kind is Impatient else math.inf)
        for client, now in ((0, 3.0), (1, 4.0)):
            coordinator.present(now, client)
            coordinator.assign(now)
        assert coordinator.next_lapse() == expected
