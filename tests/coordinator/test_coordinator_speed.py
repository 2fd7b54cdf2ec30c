"""A client's speed as the coordinator hears of it before the first visit."""

import math

import pytest
import torch

from offbeat.algorithms import FedBuff, FedLuck, LocalPlan
from offbeat.algorithms.fedluck_choice import best_steps_and_compression
from offbeat.coordinator import Coordinator

PLAN = LocalPlan(steps=7, batch_size=4, lr=0.1)


def make(algorithm=None, **settings):
    calls = []
    made = Coordinator(
        algorithm or FedLuck(), torch.zeros(3), clients=3, local=PLAN, seed=5, record=calls.append, **settings
    )
    return made, calls


def test_the_first_visit_is_planned_by_it_and_a_replay_plans_alike():
    coordinator, calls = make()
    coordinator.note_speed(1.0, 2, 0.05, 90.0)
    coordinator.note_speed(1.5, 2, 0.01, 60.0)
    for client in (1, 2):
        coordinator.present(2.0, client)
    plans = {assignment.client: assignment.plan for assignment in coordinator.assign(2.0)}
    steps, share = best_steps_and_compression(0.01, 60.0, 1.0)
    assert plans[1] == PLAN
    assert (plans[2].steps, plans[2].compression.parameters) == (steps, (("share", share),))
    assert calls[0].arguments == {"now": 1.0, "client": 2, "step_seconds": 0.05, "upload_seconds": 90.0}
    replayed, _ = make()
    for call in calls:
        replayed.replay(call)
    assert {assignment.client: assignment.plan for assignment in replayed.visits.open_assignments()} == plans


def test_after_the_first_visit_only_updates_tell(same_state):
    coordinator, calls = make()
    coordinator.present(0.0, 0)
    (assignment,) = coordinator.assign(0.0)
    for _ in range(2):
        before, recorded = coordinator.state_dict(), len(calls)
        assert not coordinator.wants_speed(0)
        coordinator.note_speed(1.0, 0, 0.01, 60.0)
        assert same_state(coordinator.state_dict(), before)
        assert len(calls) == recorded
        coordinator.drop(1.0, 0, assignment.visit)
    assert coordinator.wants_speed(1)


def test_an_algorithm_that_does_not_measure_hears_nothing():
    coordinator, calls = make(FedBuff())
    assert not coordinator.wants_speed(0)
    coordinator.note_speed(0.0, 0, 0.1, 1.0)
    assert calls == []


def test_a_run_that_waits_for_examples_wants_no_speed_yet():
    coordinator, calls = make(waits_for_examples=True)
    coordinator.note_speed(0.0, 0, 0.1, 1.0)
    assert calls == []
    coordinator.weigh_clients(1.0, [1, 2, 3])
    assert coordinator.wants_speed(0)


@pytest.mark.parametrize(
    ("client", "seconds", "message"),
    [
        (3, (0.1, 1.0), "client must be in 0 … 2, got 3"),
        (-1, (0.1, 1.0), "client must be in 0 … 2, got -1"),
        (0, (-0.1, 1.0), "step_seconds must not be negative"),
        (0, (0.1, math.nan), "upload_seconds must be finite"),
        (0, (math.inf, 1.0), "step_seconds must be finite"),
    ],
)
def test_what_cannot_be_a_speed_is_refused(client, seconds, message, same_state):
    coordinator, calls = make()
    before = coordinator.state_dict()
    with pytest.raises(ValueError, match=message):
        coordinator.note_speed(0.0, client, *seconds)
    assert same_state(coordinator.state_dict(), before)
    assert calls == []
