"""A run that gets more clients while it goes on."""

import pytest
import torch

from offbeat.algorithms import ALGORITHMS, FedAsync, FedAvg, FedBuff, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.coordinator.participation_limits import Participation
from offbeat.coordinator.selection import UniformPool

LOCAL = LocalPlan(steps=1, batch_size=1, lr=0.1)
LENGTH = 3


def made(algorithm, clients=2, record=None, **more):
    return Coordinator(algorithm, torch.zeros(LENGTH), clients=clients, local=LOCAL, seed=5, record=record, **more)


def visit(coordinator, client, value):
    """Do a visit of a client."""
    coordinator.present(0.0, client)
    (assignment,) = coordinator.assign(0.0)
    assert assignment.client == client
    vector = torch.full((LENGTH,), value)
    return coordinator.receive(0.0, client, assignment.visit, vector, examples=1, steps=1, normaliser=1.0)


def test_a_new_client_takes_part_as_if_it_had_always_been_there():
    grown, large = made(FedBuff(buffer_size=2, concurrency=9)), made(FedBuff(buffer_size=2, concurrency=9), clients=4)
    with pytest.raises(ValueError, match="client must be in 0 … 1, got 3"):
        grown.present(0.0, 3)
    for coordinator in (grown, large):
        visit(coordinator, 0, 1.0)
    grown.grow(0.0, 4)
    assert grown.clients == grown.algorithm.clients == 4
    for client, value in ((3, 2.0), (1, 3.0), (2, 4.0)):
        assert [visit(coordinator, client, value).counted for coordinator in (grown, large)] == [True, True]
    assert grown.algorithm.version == 2
    assert torch.equal(grown.algorithm.model, large.algorithm.model)


def test_more_clients_work_at_a_time():
    coordinator = made(FedBuff(buffer_size=9, concurrency=3))
    coordinator.grow(0.0, 5)
    for client in range(5):
        coordinator.present(0.0, client)
    assert len(coordinator.assign(0.0)) == 3


def test_calls_with_a_growth_are_replayed_and_saved_bit_for_bit(same_state):
    calls = []
    first = made(FedAsync(), record=calls.append)
    visit(first, 0, 1.0)
    first.grow(1.0, 3)
    visit(first, 2, -2.0)
    first.present(2.0, 1)
    second, third = made(FedAsync()), made(FedAsync())
    for call in calls:
        second.replay(call)
    third.load_state_dict(first.state_dict())
    for other in (second, third):
        assert same_state(first.state_dict(), other.state_dict())
        assert [one.client for one in other.assign(3.0)] == [1]
        assert visit(other, 2, 1.0).counted


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_only_algorithms_whose_steps_do_not_depend_on_n_grow(name):
    kind = ALGORITHMS[name]
    assert kind.grows == (name in {"fedbuff", "fedasync", "fedfa", "fadas", "port", "ringmaster"})


@pytest.mark.parametrize(
    ("algorithm", "clients", "more", "problem"),
    [
        (FedBuff(buffer_size=2, concurrency=2), 2, {}, "there can only be more"),
        (FedBuff(buffer_size=2, concurrency=2), 1, {}, "there can only be more"),
        (FedAvg(cohort=2), 3, {}, "fedavg cannot have more clients"),
        (FedBuff(buffer_size=2, concurrency=2), 3, {"participation": Participation(2, limit=5)}, "a private run"),
    ],
)
def test_a_growth_that_is_refused_changes_nothing(algorithm, clients, more, problem, same_state):
    coordinator = made(algorithm, **more)
    before = coordinator.state_dict()
    with pytest.raises(ValueError, match=problem):
        coordinator.grow(0.0, clients)
    assert coordinator.clients == 2
    assert same_state(before, coordinator.state_dict())


def test_a_selection_of_ones_own_without_grow_is_refused():
    class Own(UniformPool):
        grow = None

    class Selecting(FedAsync):
        selection = Own

    coordinator = made(Selecting())
    with pytest.raises(ValueError, match="selects clients by a rule"):
        coordinator.grow(0.0, 3)
