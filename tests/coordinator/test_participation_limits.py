import json
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import FedAvg, FedBuff
from offbeat.algorithms.components.buffers.secret import secret
from offbeat.coordinator.participation_limits import Participation
from tests.coordinator.conftest import CLIENTS, LENGTH, everybody_present, make


def whole(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def private(limit=100, separation=1, buffer_size=2, concurrency=3, sealed=True, record=None, rounds=False):
    """Return a coordinator of six clients whose participation is limited."""
    if rounds:
        algorithm = FedAvg(cohort=buffer_size, weighting="uniform")
    else:
        algorithm = FedBuff(buffer_size=buffer_size, concurrency=concurrency)
    if sealed:
        algorithm.wrap(secret(step=1.0, bound=10**6, least=2))
    participation = Participation(CLIENTS, limit=limit, separation=separation)
    return make(algorithm, record, participation=participation)


def hand_in(coordinator, now, assignment, value=1):
    sealed = bool(coordinator.algorithm.buffer.__class__.__name__ == "SecretSum")
    vector = whole(*[value] * LENGTH) if sealed else torch.full((LENGTH,), float(value))
    share = b"share" if sealed else None
    report = {"examples": 1, "steps": 2, "normaliser": 2.0, "share": share}
    receipt = coordinator.receive(now, assignment.client, assignment.visit, vector, **report)
    coordinator.present(now, assignment.client)
    return receipt


def test_a_client_is_not_assigned_again_before_its_sum_is_open():
    coordinator = private(concurrency=6)
    everybody_present(coordinator)
    first = coordinator.assign(0.0)
    assert len(first) == 6
    for assignment in first[:3]:
        assert hand_in(coordinator, 1.0, assignment).counted
    assert coordinator.assign(1.0) == []  # one sum is sealed, another one is open
    coordinator.sealed_sums.reveal(2.0, whole(2, 2, 2))
    again = coordinator.assign(2.0)
    assert {one.client for one in again} == {one.client for one in first[:2]}
    assert {one.version for one in again} == {1}
    assert list(coordinator.participation.counts()) == [
        int(client in {one.client for one in first[:3]}) for client in range(CLIENTS)
    ]


def test_a_client_comes_again_as_many_sums_later_as_it_has_to():
    coordinator = private(separation=3, sealed=False, buffer_size=1, concurrency=1)
    everybody_present(coordinator)
    order = []
    for number in range(12):
        (assignment,) = coordinator.assign(float(number))
        order.append(assignment.client)
        hand_in(coordinator, number + 0.5, assignment)
    for client in range(CLIENTS):
        numbers = [number for number, one in enumerate(order) if one == client]
        assert all(later - earlier >= 3 for earlier, later in pairwise(numbers))


def test_a_client_takes_part_as_often_as_it_may():
    coordinator = private(limit=2, sealed=False, buffer_size=1, concurrency=1)
    everybody_present(coordinator)
    for number in range(2 * CLIENTS):
        (assignment,) = coordinator.assign(float(number))
        hand_in(coordinator, number + 0.5, assignment)
    assert list(coordinator.participation.counts()) == [2] * CLIENTS
    assert coordinator.assign(100.0) == []
    assert not coordinator.has_work


def test_a_client_with_a_lower_limit_takes_part_less_often_also_after_a_replay_and_a_restart():
    calls = []
    coordinator = private(limit=3, sealed=False, buffer_size=1, concurrency=1, record=calls.append)
    everybody_present(coordinator)
    for client, most in ((0, 0), (1, 2), (2, 9), (1, 5)):
        coordinator.limit_participation(0.0, client, most)
    assert [call.name for call in calls].count("limit_participation") == 2  # the others lower nothing
    for number in range(8):
        (assignment,) = coordinator.assign(float(number))
        hand_in(coordinator, number + 0.5, assignment)
    restored = private(limit=3, sealed=False, buffer_size=1, concurrency=1)
    restored.load_state_dict(coordinator.state_dict())
    replayed = private(limit=3, sealed=False, buffer_size=1, concurrency=1)
    for call in calls:
        replayed.replay(call)
    for one in (coordinator, restored, replayed):
        everybody_present(one)
        while one.has_work:
            (assignment,) = one.assign(9.0)
            hand_in(one, 9.5, assignment)
        assert list(one.participation.counts()) == [0, 2, 3, 3, 3, 3]


def test_after_a_discarded_sum_clients_wait_for_a_later_version():
    coordinator = private(buffer_size=2, concurrency=4)
    everybody_present(coordinator)
    first = coordinator.assign(0.0)
    for assignment in first[:2]:
        hand_in(coordinator, 1.0, assignment)
    coordinator.sealed_sums.discard(2.0)
    fresh = coordinator.assign(2.0)
    assert {one.client for one in fresh}.isdisjoint(one.client for one in first[:2])  # the version is still 0
    for assignment in first[2:]:
        hand_in(coordinator, 3.0, assignment)
    coordinator.sealed_sums.reveal(4.0, whole(2, 2, 2))
    assert coordinator.algorithm.version == 1
    assert {one.client for one in coordinator.assign(4.0)} <= {one.client for one in first}


SCRIPT = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=60)


@given(SCRIPT, st.integers(1, 3), st.integers(1, 4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_in_any_script_limits_hold_and_a_replay_and_a_restart_are_the_same(script, limit, separation, rounds):
    records = []
    coordinator = private(limit, separation, record=records.append, rounds=rounds)
    everybody_present(coordinator)
    open_visits, taken, starts, now, moved = {}, [], {}, 0.0, False
    for client, action in script:
        now += 1.0
        if action == 0 and client in open_visits:
            number = coordinator.algorithm.released + 1
            assignment = open_visits.pop(client)
            if hand_in(coordinator, now, assignment, value=client).counted:
                taken.append((client, number))
                starts.setdefault(client, []).append(assignment.version)
        elif action == 1 and client in open_visits:
            coordinator.drop(now, client, open_visits.pop(client).visit)
            coordinator.present(now, client)
        elif action == 2 and coordinator.algorithm.sealed:
            total = coordinator.algorithm.buffer.masked_sum(coordinator.algorithm.sealed[0])
            if client > 1:
                coordinator.sealed_sums.reveal(now, total)
            elif client == 1:
                coordinator.sealed_sums.discard(now)
            else:
                refused = coordinator.algorithm.sealed[0].entries[-1].update.client
                coordinator.sealed_sums.withdraw(now, refused)
                moved = True
        else:
            open_visits |= {one.client: one for one in coordinator.assign(now)}
    for client in range(CLIENTS):
        numbers = [number for one, number in taken if one == client]
        assert len(numbers) <= limit
        if not moved:
            assert all(later - earlier >= separation for earlier, later in pairwise(numbers))
        versions = starts.get(client, [])
        assert all(later > earlier for earlier, later in pairwise(versions))
        assert coordinator.participation.counts()[client] == len(numbers)
    replayed = private(limit, separation, rounds=rounds)
    for call in records:
        replayed.replay(call)
    restarted = private(limit, separation, rounds=rounds)
    state = coordinator.state_dict()
    plain = {key: value for key, value in state.items() if not isinstance(value, torch.Tensor)}
    restarted.load_state_dict(state | json.loads(json.dumps(plain)))
    work = coordinator.assign(now + 1)
    assert replayed.assign(now + 1) == work
    assert restarted.assign(now + 1) == work
    for other in (replayed, restarted):
        assert torch.equal(other.algorithm.model, coordinator.algorithm.model)
        assert list(other.participation.counts()) == list(coordinator.participation.counts())


@pytest.mark.parametrize("name", ["reveal", "discard"])
def test_without_a_sealed_sum_there_is_nothing_to_open(name):
    records = []
    coordinator = private(record=records.append)
    arguments = (whole(1, 1, 1),) if name == "reveal" else ()
    with pytest.raises(ValueError, match="no sum is sealed"):
        getattr(coordinator.sealed_sums, name)(1.0, *arguments)
    assert records == []


def test_the_clients_of_a_sum_that_cannot_be_opened_come_again_apart_and_only_once_more():
    coordinator = private(buffer_size=2, concurrency=6)
    everybody_present(coordinator)
    work = {one.client: one for one in coordinator.assign(0.0)}
    for client in (0, 1, 2, 3):
        hand_in(coordinator, 1.0, work[client])
    coordinator.sealed_sums.discard(2.0)  # of clients 0 and 1: number 1
    coordinator.sealed_sums.reveal(2.0, whole(0, 0, 0))  # number 2
    participation = coordinator.participation
    assert participation.allows(0, coordinator.algorithm)  # from number 1 + 1 + 1 on
    assert not participation.allows(1, coordinator.algorithm)
    assert participation.suspended() == []
    participation.note_failure([0], 2)
    assert participation.suspended() == [0]
    assert not participation.allows(0, coordinator.algorithm)


def test_a_withdrawn_update_moves_the_others_to_their_new_sum():
    coordinator = private(buffer_size=2, concurrency=6, separation=2)
    everybody_present(coordinator)
    work = {one.client: one for one in coordinator.assign(0.0)}
    for client in (0, 1, 2, 3):
        hand_in(coordinator, 1.0, work[client])
    coordinator.sealed_sums.withdraw(2.0, 0)  # client 1 goes into the sum after that of 2 and 3
    with pytest.raises(ValueError, match="client 0 is not in the sealed sum"):
        coordinator.sealed_sums.withdraw(2.0, 0)
    coordinator.sealed_sums.reveal(3.0, whole(0, 0, 0))  # number 1, of clients 2 and 3
    hand_in(coordinator, 4.0, work[4])
    coordinator.sealed_sums.reveal(5.0, whole(0, 0, 0))  # number 2, of clients 1 and 4
    algorithm, participation = coordinator.algorithm, coordinator.participation
    assert [participation.allows(client, algorithm) for client in (1, 2, 3, 4)] == [False, True, True, False]


def test_a_client_that_began_early_is_not_assigned_again_while_its_sum_is_sealed():
    coordinator = private(buffer_size=2, concurrency=3)
    everybody_present(coordinator)
    slow, *fast = coordinator.assign(0.0)
    for assignment in fast:
        hand_in(coordinator, 1.0, assignment)
    coordinator.sealed_sums.reveal(2.0, whole(0, 0, 0))  # version 1: the slow client works from 0
    (other, *_) = coordinator.assign(2.0)
    hand_in(coordinator, 3.0, slow)
    hand_in(coordinator, 3.0, other)
    assert len(coordinator.sealed_sums.waiting()) == 1
    assert not coordinator.participation.allows(slow.client, coordinator.algorithm)
    coordinator.sealed_sums.reveal(4.0, whole(0, 0, 0))
    assert coordinator.participation.allows(slow.client, coordinator.algorithm)


def test_discarded_sums_do_not_bring_a_client_back_to_the_version_that_it_worked_from():
    coordinator = private(buffer_size=2, concurrency=6)
    everybody_present(coordinator)
    work = {one.client: one for one in coordinator.assign(0.0)}
    for client in range(6):
        hand_in(coordinator, 1.0, work[client])
    for _ in range(3):
        coordinator.sealed_sums.discard(2.0)
    assert (coordinator.algorithm.version, coordinator.algorithm.opened) == (0, 3)
    assert not any(coordinator.participation.allows(client, coordinator.algorithm) for client in range(6))
    assert coordinator.assign(3.0) == []
