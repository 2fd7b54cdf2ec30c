"""A coordinator whose algorithm averages over all clients by their examples: it begins once it knows these."""

import pytest
import torch

from offbeat.algorithms import AsyncCommSGD, FedAvg, FedLaAvg, LocalPlan
from offbeat.algorithms.components.schedules.patterns import round_robin
from offbeat.coordinator import Coordinator, RecordedCall

PLAN = LocalPlan(steps=2, batch_size=4, lr=0.1)
EXAMPLES = [1, 2, 5]


def fedlaavg():
    return FedLaAvg(cohort=3)


def make(algorithm, record=None, **settings):
    model = torch.tensor([1.0, 2.0])
    return Coordinator(algorithm, model, clients=3, local=PLAN, seed=5, record=record, **settings)


def waiting(algorithm=fedlaavg, record=None):
    return make(algorithm(), record, waits_for_examples=True)


def all_present(coordinator):
    for client in range(3):
        coordinator.present(0.0, client)


def hand_in(coordinator, now=2.0):
    for client in range(3):
        coordinator.receive(now, client, 0, torch.ones(2), examples=EXAMPLES[client], steps=2, normaliser=2.0)


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (FedLaAvg(), True),
        (FedLaAvg(weighting="uniform"), False),
        (AsyncCommSGD(), True),
        (AsyncCommSGD(weighting="uniform"), False),
        (FedAvg(), False),
    ],
)
def test_which_algorithms_need_to_know_the_weights_of_all_clients(algorithm, expected):
    assert algorithm.weighs_all_clients is expected


def test_no_work_is_handed_out_before_the_weights_are_known():
    coordinator = waiting()
    all_present(coordinator)
    assert not coordinator.has_work
    assert coordinator.assign(1.0) == []
    with pytest.raises(ValueError, match="needs every client's number of examples"):
        coordinator.replay(RecordedCall("assign", {"now": 1.0, "clients": [0]}))
    coordinator.weigh_clients(1.0, EXAMPLES)
    assert {assignment.client for assignment in coordinator.assign(1.0)} == {0, 1, 2}


@pytest.mark.parametrize(
    "algorithm", [fedlaavg, lambda: AsyncCommSGD(pattern=round_robin(k=3, every=1))], ids=["fedlaavg", "async_comm_sgd"]
)
def test_clients_weigh_as_in_a_simulation(algorithm):
    late, simulated = waiting(algorithm), make(algorithm(), data_weights=torch.tensor(EXAMPLES, dtype=torch.float64))
    late.weigh_clients(0.0, EXAMPLES)
    for coordinator in (late, simulated):
        all_present(coordinator)
        coordinator.assign(1.0)
        for client in range(3):
            vector = torch.full((2,), client + 1.0)
            coordinator.receive(2.0, client, 0, vector, examples=EXAMPLES[client], steps=2, normaliser=2.0)
        if coordinator.algorithm.period:
            coordinator.tick(3.0)
    assert late.algorithm.version == simulated.algorithm.version == 1
    expected = torch.tensor([1.0, 2.0]) - (1 * 1 + 2 * 2 + 5 * 3) / 8
    assert torch.allclose(late.algorithm.model, expected)
    assert torch.equal(late.algorithm.model, simulated.algorithm.model)


def test_a_period_that_passes_while_it_waits_makes_no_version():
    calls = []
    coordinator = waiting(AsyncCommSGD, calls.append)
    assert not coordinator.tick(1.0)
    assert coordinator.algorithm.version == 0
    assert calls == []


def test_a_replay_and_a_checkpoint_have_the_same_weights():
    calls = []
    first = waiting(record=calls.append)
    early = first.state_dict()
    all_present(first)
    first.weigh_clients(1.0, EXAMPLES)
    first.assign(1.0)
    middle = first.state_dict()
    hand_in(first)
    assert [call.name for call in calls if call.name != "present"] == ["weigh_clients", "assign", *3 * ["receive"]]
    assert calls[3].arguments == {"now": 1.0, "examples": EXAMPLES}
    replayed, from_early, from_middle = waiting(), waiting(), waiting()
    from_early.load_state_dict(early)
    assert from_early.waits_for_examples
    from_middle.load_state_dict(middle)
    assert not from_middle.waits_for_examples
    for coordinator, rest in ((replayed, calls), (from_early, calls), (from_middle, calls[5:])):
        for call in rest:
            coordinator.replay(call)
        assert torch.equal(coordinator.algorithm.model, first.algorithm.model)
        assert not coordinator.waits_for_examples


def test_weights_that_do_not_fit_are_refused_and_nothing_has_changed():
    coordinator = waiting()
    for examples in ([1, 2], [0, 0, 0], [1, 2, -1]):
        with pytest.raises(ValueError, match="3 finite numbers"):
            coordinator.weigh_clients(1.0, examples)
        assert coordinator.waits_for_examples
    coordinator.weigh_clients(1.0, EXAMPLES)
    with pytest.raises(ValueError, match="have been weighed"):
        coordinator.weigh_clients(2.0, EXAMPLES)
