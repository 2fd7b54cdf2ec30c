"""The clients that the coordinator takes, where chance does not decide.

Also the clients that it asks for their updates because they are too stale.
"""

import json

import pytest
import torch

from offbeat.algorithms import AsyncCommSGD, FedLaAvg, FedLuck, Port
from offbeat.algorithms.components.schedules.patterns import full, imbalanced
from offbeat.coordinator import Coordinator
from tests.coordinator.conftest import CLIENTS, PLAN


def make(algorithm, **more):
    coordinator = Coordinator(algorithm, torch.zeros(1), clients=CLIENTS, local=PLAN, seed=5, **more)
    for client in range(CLIENTS):
        coordinator.present(0.0, client)
    return coordinator


def hand_in(coordinator, assignment, now=1.0, vector=None, **more):
    """Take the update in; the client is there again at once."""
    report = {"examples": 1, "steps": 2, "normaliser": 2.0, "base": torch.zeros(1), "since": assignment.since}
    vector = torch.ones(1) if vector is None else vector
    receipt = coordinator.receive(now, assignment.client, assignment.visit, vector, **report | more)
    coordinator.present(now, assignment.client)
    return receipt


def clients_of(assignments):
    return [assignment.client for assignment in assignments]


def restarted(coordinator, algorithm):
    """A coordinator that goes on from the other's state, of which all but the tensors went through JSON."""
    state = coordinator.state_dict()
    plain = {key: value for key, value in state.items() if not isinstance(value, torch.Tensor)}
    other = Coordinator(algorithm, torch.zeros(1), clients=CLIENTS, local=PLAN, seed=5)
    other.load_state_dict(state | json.loads(json.dumps(plain)))
    return other


# --- Longest absent first. ---


def test_those_whose_updates_have_not_counted_for_longest_are_next():
    coordinator = make(FedLaAvg(cohort=2))
    rounds = []
    for _ in range(4):
        assignments = coordinator.assign(0.0)
        rounds.append(clients_of(assignments))
        for assignment in assignments:
            assert hand_in(coordinator, assignment).counted
    assert rounds == [[0, 1], [2, 3], [4, 5], [0, 1]]


def test_who_was_asked_but_not_heard_in_time_is_asked_again_first():
    coordinator = make(FedLaAvg(cohort=2), lease_seconds=5.0)
    lost, heard = coordinator.assign(0.0)
    hand_in(coordinator, heard)
    coordinator.lapse(5.0)
    assert coordinator.algorithm.version == 1
    coordinator.present(5.0, lost.client)
    assert clients_of(coordinator.assign(5.0)) == [0, 2]


def test_an_update_that_comes_too_late_does_not_move_its_client_back():
    coordinator = make(FedLaAvg(cohort=2), lease_seconds=5.0)
    late, heard = coordinator.assign(0.0)
    hand_in(coordinator, heard)
    coordinator.lapse(5.0)
    assert not hand_in(coordinator, late, now=6.0).counted
    assert clients_of(coordinator.assign(6.0)) == [0, 2]


def test_who_is_away_is_passed_over_and_first_when_it_is_back():
    coordinator = make(FedLaAvg(cohort=2))
    coordinator.absent(0.0, 1)
    rounds = []
    for number in range(3):
        assignments = coordinator.assign(0.0)
        rounds.append(clients_of(assignments))
        for assignment in assignments:
            hand_in(coordinator, assignment)
        if number == 1:
            coordinator.present(1.0, 1)
    assert rounds == [[0, 2], [3, 4], [1, 5]]


# --- Who is back before its round rests. ---


def test_who_is_back_before_the_round_in_which_it_talks_rests_until_then():
    coordinator = make(AsyncCommSGD(pattern=full(3)))
    assignments = coordinator.assign(0.0)
    assert {assignment.plan.steps for assignment in assignments} == {6}
    for assignment in assignments:
        hand_in(coordinator, assignment, now=0.5)
    for now in (1.0, 2.0):
        coordinator.tick(now)
        assert coordinator.assign(now) == []
    coordinator.tick(3.0)
    assert sorted(clients_of(coordinator.assign(3.0))) == list(range(CLIENTS))
    # 6 clients, each with a sixth of the objective, moved by 1.
    assert coordinator.algorithm.model.item() == pytest.approx(-1.0)


def test_each_rests_for_as_long_as_its_own_pattern_says():
    coordinator = make(AsyncCommSGD(pattern=imbalanced()))
    rounds = []
    for now in range(7):
        if now:
            coordinator.tick(float(now))
        assignments = coordinator.assign(float(now))
        rounds.append(sorted(clients_of(assignments)))
        assert {each.plan.steps for each in assignments} == {2 * (client + 1) for client in rounds[-1]}
        for assignment in assignments:
            hand_in(coordinator, assignment, now=now + 0.1)
    assert rounds == [[0, 1, 2, 3, 4, 5], [0], [0, 1], [0, 2], [0, 1, 3], [0, 4], [0, 1, 2, 5]]


def test_rest_outlasts_a_restart_and_going_away():
    algorithm = AsyncCommSGD(pattern=full(3))
    coordinator = make(algorithm)
    for assignment in coordinator.assign(0.0):
        hand_in(coordinator, assignment, now=0.5)
    coordinator.tick(1.0)
    coordinator = restarted(coordinator, AsyncCommSGD(pattern=full(3)))
    coordinator.absent(1.5, 4)
    coordinator.present(1.6, 4)
    assert coordinator.assign(1.6) == []
    coordinator.tick(2.0)
    assert coordinator.assign(2.0) == []
    coordinator.absent(2.5, 3)
    coordinator.tick(3.0)
    assert sorted(clients_of(coordinator.assign(3.0))) == [0, 1, 2, 4, 5]


def test_who_is_late_for_its_round_counts_in_the_next_and_rests_until_then():
    coordinator = make(AsyncCommSGD(pattern=full(1)))
    late = next(each for each in coordinator.assign(0.0) if each.client == 2)
    coordinator.tick(1.0)
    hand_in(coordinator, late, now=1.5)
    assert coordinator.assign(1.5) == []
    assert coordinator.algorithm.model.item() == 0
    coordinator.tick(2.0)
    assert coordinator.algorithm.model.item() == pytest.approx(-1 / 6)
    assert clients_of(coordinator.assign(2.0)) == [2]


def test_a_period_that_is_over_frees_those_who_were_heard_in_it():
    coordinator = make(FedLuck())
    first, second, *_ = coordinator.assign(0.0)
    hand_in(coordinator, first)
    assert coordinator.assign(1.0) == []
    coordinator.tick(2.0)
    hand_in(coordinator, second, now=2.5)
    assert clients_of(coordinator.assign(2.5)) == [first.client]
    coordinator.tick(3.0)
    assert clients_of(coordinator.assign(3.0)) == [second.client]


# --- Who is too stale is asked for what it has. ---


def urgent(coordinator):
    return coordinator.visits.assignments(coordinator.algorithm.urgent())


def test_those_who_are_too_stale_are_urgent_until_they_are_heard_or_lapse():
    coordinator = make(Port(min_clients=1, staleness_bound=1, concurrency=3), lease_seconds=50.0)
    slow, dead, quick = coordinator.assign(0.0)
    for now in (1.0, 2.0):
        assert urgent(coordinator) == []
        assert hand_in(coordinator, quick, now=now).new_version
        quick = next(iter(coordinator.assign(now)))
    assert urgent(coordinator) == [slow, dead]
    assert not hand_in(coordinator, quick, now=3.0).new_version
    assert not hand_in(coordinator, slow, now=3.0, steps=1).new_version
    assert urgent(coordinator) == [dead]
    other = restarted(coordinator, Port(min_clients=1, staleness_bound=1, concurrency=3))
    assert urgent(other) == [dead]
    assert coordinator.drop(4.0, dead.client, dead.visit)
    assert urgent(coordinator) == []


# --- Records. ---
