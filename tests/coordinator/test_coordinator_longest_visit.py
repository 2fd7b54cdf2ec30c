"""The longest duration of a visit, replayed."""

import json

import pytest
import torch

from offbeat.algorithms import FedBuff, LocalPlan
from offbeat.coordinator import Coordinator

PLAN = LocalPlan(steps=2, batch_size=4, lr=0.1)


def make(record=None, **settings):
    settings = {"lease_seconds": 10.0, "max_visit_seconds": 25.0} | settings
    algorithm = FedBuff(buffer_size=2, concurrency=1)
    return Coordinator(algorithm, torch.zeros(2), clients=3, local=PLAN, seed=5, record=record, **settings)


def test_a_lease_is_not_renewed_beyond_the_longest_duration():
    coordinator = make()
    coordinator.present(0.0, 1)
    (assignment,) = coordinator.assign(0.0)
    assert (assignment.lease_until, assignment.visit_until) == (10.0, 25.0)
    ends = []
    for now in (9.0, 18.0, 24.0):
        assert coordinator.renew(now, 1, 0)
        assert coordinator.assignment(1) is not None
        ends.append(coordinator.assignment(1).lease_until)
    assert ends == [19.0, 25.0, 25.0]
    coordinator.lapse(25.0)
    assert not coordinator.is_open(1)
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
    coordinator = make(**settings)
    coordinator.present(0.0, 1)
    (assignment,) = coordinator.assign(0.0)
    assert assignment.lease_until == lease_until
    assert coordinator.next_lapse() == lease_until


def test_a_replay_and_a_checkpoint_know_how_long_a_visit_may_last():
    calls = []
    first = make(calls.append)
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
    replayed, restored = make(), make()
    restored.load_state_dict(saved)
    for coordinator, rest in ((replayed, calls), (restored, calls[count:])):
        for call in rest:
            coordinator.replay(call)
        assert coordinator.is_open(2)
        assert not coordinator.is_open(1)
        assert coordinator.assignment(2) == first.assignment(2)
