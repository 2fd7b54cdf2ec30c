"""The clients that the coordinator takes, where chance does not decide.

Also the clients that it asks for their updates because they are too stale.
"""

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import AsyncCommSGD, FedLaAvg, FedLuck, LocalPlan, Port
from offbeat.algorithms.components.schedules.patterns import full, imbalanced, own, round_robin
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


def test_the_order_is_known_after_a_restart():
    coordinator = make(FedLaAvg(cohort=2))
    for _ in range(2):
        for assignment in coordinator.assign(0.0):
            hand_in(coordinator, assignment)
    other = restarted(coordinator, FedLaAvg(cohort=2))
    assert clients_of(other.assign(0.0)) == [4, 5]


@settings(max_examples=50)
@given(data=st.data())
def test_with_everybody_there_often_enough_nobody_is_absent_for_long(data):
    """Lemma 2: there at least once in any E successive rounds, nobody waits longer than ⌈N/K⌉E − 1."""
    often, cohort = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    coordinator = make(FedLaAvg(cohort=cohort))
    last, seen = dict.fromkeys(range(CLIENTS), -1), dict.fromkeys(range(CLIENTS), -1)
    for number in range(25):
        there = {client for client in range(CLIENTS) if number - seen[client] >= often}
        there |= data.draw(st.sets(st.integers(0, CLIENTS - 1), min_size=cohort))
        for client in range(CLIENTS):
            seen[client] = number if client in there else seen[client]
            (coordinator.present if client in there else coordinator.absent)(0.0, client)
        for assignment in coordinator.assign(0.0):
            hand_in(coordinator, assignment)
            last[assignment.client] = number
        assert coordinator.algorithm.version == number + 1
        assert max(number - each for each in last.values()) <= -(-CLIENTS // cohort) * often - 1


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


def test_nobody_is_urgent_where_the_server_waits():
    coordinator = make(Port(min_clients=1, staleness_bound=1, concurrency=2, urgent_requests=False))
    _, quick = coordinator.assign(0.0)
    for now in (1.0, 2.0):
        hand_in(coordinator, quick, now=now)
        (quick,) = coordinator.assign(now)
    assert urgent(coordinator) == []


# --- Records. ---


def test_measured_times_in_the_records_give_the_same_plans_again():
    calls = []
    coordinator = make(FedLuck(period=1.0, steps=(1, 50), compression=(0.01, 0.9)), record=calls.append)
    for now in range(4):
        for assignment in coordinator.assign(float(now)):
            # α from 0.1 to 0.6 s, β from 1 to 6 s.
            times = {"step_seconds": 0.1 * (1 + assignment.client), "upload_seconds": 1.0 + assignment.client}
            hand_in(coordinator, assignment, now=now + 0.5, **times)
        coordinator.tick(now + 1.0)
    replayed = Coordinator(
        FedLuck(period=1.0, steps=(1, 50), compression=(0.01, 0.9)),
        torch.zeros(1),
        clients=CLIENTS,
        local=PLAN,
        seed=5,
    )
    for call in calls:
        replayed.replay(call)
    again = restarted(coordinator, FedLuck(period=1.0, steps=(1, 50), compression=(0.01, 0.9)))
    plans = {each.client: each.plan for each in coordinator.assign(9.0)}
    assert {each.client: each.plan for each in replayed.assign(9.0)} == plans
    assert {each.client: each.plan for each in again.assign(9.0)} == plans
    assert len({(plan.steps, plan.compression) for plan in plans.values()}) >= 3
    # Those at work, too, keep their plans over a restart.
    restored = restarted(coordinator, FedLuck(period=1.0, steps=(1, 50), compression=(0.01, 0.9)))
    assert {client: restored.visits.assignment(client).plan for client in range(CLIENTS)} == plans


def test_a_rule_of_the_users_own_is_asked_again_in_a_replay():
    def make_algorithm():
        return AsyncCommSGD(pattern=own(lambda client, last, clients: last + 1 + client % 2, longest_gap=2))

    calls = []
    coordinator = make(make_algorithm(), record=calls.append)
    for now in range(5):
        for assignment in coordinator.assign(float(now)):
            hand_in(coordinator, assignment, now=now + 0.5, vector=torch.tensor([0.5 + now]))
        coordinator.tick(now + 1.0)
    replayed = Coordinator(make_algorithm(), torch.zeros(1), clients=CLIENTS, local=PLAN, seed=5)
    for call in calls:
        replayed.replay(call)
    assert torch.equal(replayed.algorithm.model, coordinator.algorithm.model)
    assert sorted(clients_of(replayed.assign(9.0))) == sorted(clients_of(coordinator.assign(9.0)))


def test_step_sizes_of_each_round_survive_a_restart():
    def make_algorithm():
        return AsyncCommSGD(pattern=round_robin(k=2, every=1), step_sizes=lambda number: 1.0 / (1 + number))

    coordinator = make(make_algorithm())
    coordinator.assign(0.0)
    other = restarted(coordinator, make_algorithm())
    for client in range(CLIENTS):
        talks = 1 + client // 2
        plan = other.visits.assignment(client).plan
        assert plan == coordinator.visits.assignment(client).plan
        assert plan.lr == tuple(1.0 / (1 + number) for number in range(talks) for _ in range(2))


def test_who_rests_waits_for_its_round_whenever_it_shows_up():
    plan = LocalPlan(steps=1, batch_size=1, lr=0.1)
    coordinator = Coordinator(AsyncCommSGD(pattern=full(every=3)), torch.zeros(1), clients=2, local=plan)
    for client in range(2):
        coordinator.present(0.0, client)
    coordinator.assign(0.0)
    coordinator.receive(0.5, 0, 0, torch.ones(1), examples=1, steps=3, normaliser=3.0)
    coordinator.drop(0.5, 1, 0)  # a place is free, and nobody is there who may have it
    coordinator.tick(1.0)
    coordinator.present(1.5, 0)
    assert coordinator.assign(1.5) == []
    coordinator.tick(2.0)
    assert coordinator.assign(2.0) == []
    coordinator.tick(3.0)
    assert [(assignment.client, assignment.version) for assignment in coordinator.assign(3.0)] == [(0, 3)]
