"""Late updates."""

import pytest

from offbeat.algorithms import FedAvg, FedBuff, FedLuck
from tests.coordinator.conftest import everybody_present, make, receive


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


def test_an_update_counts_after_its_lease_has_ended():
    coordinator = make(FedBuff(buffer_size=1, concurrency=2), lease_seconds=5.0)
    everybody_present(coordinator)
    late, _ = coordinator.assign(0.0)
    coordinator.lapse(6.0)
    assert not coordinator.visits.has_slot(late.client)
    assert coordinator.late_updates.counts(late)
    assert receive(coordinator, 7.0, late).counted


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
