"""Clients that are forgotten: what is taken out of sums, and a replay that comes to the same state."""

import random
from functools import partial

import pytest
import torch

from offbeat.algorithms import FedAsync, FedAvg, FedBuff, FedNova
from offbeat.algorithms.components.buffers.robust import robust
from offbeat.algorithms.components.buffers.share_cap import cap_share
from offbeat.algorithms.components.buffers.wrappers import clip
from offbeat.coordinator import Coordinator
from tests.algorithms.case import LENGTH, PLAN, VECTORS, Case, Deferred, all_cases

CLIENTS = 6


def coordinator_of(make, record=None, clients=CLIENTS):
    return Coordinator(make(), torch.ones(LENGTH), clients=clients, local=PLAN, seed=3, record=record)


def visit(coordinator, client):
    coordinator.present(0.0, client)
    coordinator.assign(0.0)
    return coordinator.visits.assignment(client)


def upload(coordinator, client, choice, examples=1, wrap=Deferred):
    """Let the client's open visit be counted, and return its receipt."""
    opened = coordinator.visits.assignment(client)
    report = {"examples": examples, "steps": 1, "normaliser": 1.0 + choice % 3, "since": opened.since, "loss": 1.0}
    base = VECTORS[opened.version % 32]
    return coordinator.receive(0.0, client, opened.visit, wrap(VECTORS[choice]), base=base, **report)


def wrapped(make, wrap):
    algorithm = make()
    algorithm.wrap(wrap)
    return algorithm


@pytest.mark.parametrize(
    "make",
    [
        partial(FedBuff, buffer_size=3, concurrency=4),
        partial(FedNova, cohort=4),
        partial(wrapped, partial(FedBuff, buffer_size=3, concurrency=4), robust("trimmed_mean")),
        partial(wrapped, partial(FedBuff, buffer_size=3, concurrency=4), clip(0.1)),
        partial(wrapped, partial(FedNova, cohort=4), cap_share(0.5)),
    ],
    ids=["sum", "tallies", "single", "clip", "cap"],
)
@pytest.mark.parametrize("gone", range(4))
def test_the_model_is_as_if_the_update_had_never_come(make, gone):
    one, other = coordinator_of(make, clients=4), coordinator_of(make, clients=4)
    for coordinator in (one, other):
        for client in range(4):
            coordinator.present(0.0, client)
        coordinator.assign(0.0)
    order = [gone, *(client for client in range(4) if client != gone)]
    for client in order[:2]:
        assert upload(one, client, client, examples=1 + client).counted
    assert one.forget(1.0, gone) == 1
    upload(other, order[1], order[1], examples=1 + order[1])
    if other.algorithm.schedule.has_rounds:
        other.drop(0.0, gone, 0)
    for client in order[2:]:
        for coordinator in (one, other):
            upload(coordinator, client, client, examples=1 + client)
    assert one.algorithm.version == other.algorithm.version == 1
    assert torch.equal(one.algorithm.model, other.algorithm.model)


def test_an_update_that_is_in_a_sum_stays_and_a_later_one_of_the_client_does_not():
    coordinator = coordinator_of(partial(FedBuff, buffer_size=4, concurrency=4, server_lr=1.0))
    for choice, client in enumerate((0, 1)):
        visit(coordinator, client)
        upload(coordinator, client, choice)
    coordinator.state_dict()  # as a checkpoint does
    visit(coordinator, 0)
    upload(coordinator, 0, 2)
    assert coordinator.algorithm.buffer.count == 3
    assert coordinator.forget(0.0, 0) == 1
    assert coordinator.algorithm.buffer.count == 2
    assert coordinator.forget(0.0, 0) == 0
    for choice, client in ((3, 2), (4, 3)):
        visit(coordinator, client)
        upload(coordinator, client, choice)
    assert coordinator.algorithm.version == 1
    expected = torch.ones(LENGTH) - (VECTORS[0] + VECTORS[1] + VECTORS[3] + VECTORS[4]) / 4
    assert torch.allclose(coordinator.algorithm.model, expected)


def test_the_second_heaviest_client_is_capped_once_the_heaviest_is_forgotten():
    def model(*, forget):
        make = partial(wrapped, partial(FedNova, cohort=5), cap_share(0.5))
        coordinator = coordinator_of(make, clients=5)
        for client in range(5):
            visit(coordinator, client)
        for client, examples in ((0, 1), (1, 1), (2, 1), (3, 100)):
            upload(coordinator, client, client, examples)
        if forget:
            coordinator.forget(0.0, 3)
        upload(coordinator, 4, 4, 50)
        return coordinator.algorithm.model

    normaliser = [1.0 + choice % 3 for choice in range(5)]
    # Client 4 weighs as much as the three others together: 3 of 6.
    weights = [1, 1, 1, 0, 3]
    a = sum(weight * one for weight, one in zip(weights, normaliser, strict=True)) / 6
    total = sum(weight / one * VECTORS[c] for c, (weight, one) in enumerate(zip(weights, normaliser, strict=True))) / 6
    assert torch.allclose(model(forget=True), torch.ones(LENGTH) - a * total, atol=1e-6)
    assert not torch.allclose(model(forget=False), model(forget=True), atol=1e-3)


@pytest.mark.parametrize("case", all_cases().values(), ids=lambda case: case.name)
def test_a_replay_comes_to_the_same_state_whenever_the_state_was_saved(case: Case, same_state):
    for seed in range(2):
        source, calls = random.Random(seed), []
        leader = coordinator_of(case.make, calls.append, clients=case.clients)
        left = set(range(case.clients))
        for step in range(60):
            for client in left:
                leader.present(float(step), client)
            leader.assign(float(step))
            busy = [client for client in left if leader.visits.has_slot(client)]
            if busy:
                upload(leader, source.choice(busy), source.randrange(32))
            if leader.algorithm.period is not None:
                leader.tick(float(step))
            if step % 20 == 15 and left:
                client = source.choice(sorted(left))
                left.remove(client)
                if leader.visits.has_slot(client):
                    leader.drop(float(step), client, leader.visits.latest(client))
                leader.absent(float(step), client)
                leader.forget(float(step), client)
            if source.random() < 0.1:
                leader.state_dict()
        follower = coordinator_of(case.make, clients=case.clients)
        for call in calls:
            follower.replay(call)
        for coordinator in (leader, follower):
            coordinator.forget_presence()
        assert same_state(follower.state_dict(), leader.state_dict())


def test_a_client_at_work_is_not_forgotten():
    coordinator = coordinator_of(FedAsync)
    visit(coordinator, 0)
    with pytest.raises(ValueError, match="client 0 is at work: drop its visit first"):
        coordinator.forget(0.0, 0)
    with pytest.raises(ValueError, match="client"):
        coordinator.forget(0.0, CLIENTS)


def test_a_round_whose_only_update_is_forgotten_makes_no_version():
    coordinator = coordinator_of(partial(FedAvg, cohort=2))
    for client in (0, 1):
        coordinator.present(0.0, client)
    coordinator.assign(0.0)
    upload(coordinator, 0, 0)
    coordinator.forget(0.0, 0)
    coordinator.drop(0.0, 1, 0)
    assert coordinator.algorithm.version == 0
    assert coordinator.algorithm.slots() == 2
