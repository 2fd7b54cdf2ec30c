import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms import FedAvg, FedNova, Port
from offbeat.algorithms.components import Update
from offbeat.algorithms.components.buffers.share_cap import cap_share
from tests.algorithms.test_whole_contract import FedPlain

CLIENTS = 4


def started(algorithm, plan, max_share=0.5):
    algorithm.wrap(cap_share(max_share))
    algorithm.start(torch.zeros(CLIENTS), clients=CLIENTS)
    for client in range(min(CLIENTS, algorithm.slots())):
        algorithm.assign(client, plan)
    return algorithm


def one_hot(client, examples, normaliser=1.0, base=None):
    """Return an update that is 1 where its client is: the step then shows what each client weighs."""
    return Update(client, 0, torch.eye(CLIENTS)[client], examples, 1, normaliser, base)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_a_heavy_client_has_half_of_the_step(order, plan):
    algorithm = started(FedAvg(cohort=3), plan)
    for client in order:
        algorithm.receive(one_hot(client, (1, 3, 2**31 - 1)[client]))
    torch.testing.assert_close(algorithm.model, -torch.tensor([0.125, 0.375, 0.5, 0.0]))


@pytest.mark.parametrize(("examples", "max_share"), [((2, 1, 1), 0.5), ((3, 1, 1), 0.6)])
def test_a_client_within_its_share_keeps_its_weight(examples, max_share, plan):
    algorithm = started(FedAvg(cohort=3), plan, max_share)
    for client in range(3):
        algorithm.receive(one_hot(client, examples[client]))
    weights = torch.tensor([*examples, 0]) / sum(examples)
    torch.testing.assert_close(algorithm.model, -weights)


def test_two_clients_are_not_capped(plan):
    algorithm = started(FedAvg(cohort=2), plan)
    algorithm.receive(one_hot(0, 9))
    algorithm.receive(one_hot(1, 1))
    torch.testing.assert_close(algorithm.model, -torch.tensor([0.9, 0.1, 0, 0]))


def test_fednova_caps_examples_and_steps(plan):
    algorithm = started(FedNova(cohort=3), plan)
    for client, (examples, a) in enumerate([(1, 2.0), (1, 4.0), (1000, 8.0)]):
        algorithm.receive(one_hot(client, examples, a))
    n, a = torch.tensor([1.0, 1.0, 2.0, 0.0]), torch.tensor([2.0, 4.0, 8.0, 1.0])
    p = n / n.sum()
    torch.testing.assert_close(algorithm.model, -(p @ a) * p / a)


def test_a_frequent_client_is_capped_over_all_its_updates(plan):
    algorithm = started(Port(min_clients=4, similarity_weight=0.0), plan)
    for client, examples in [(0, 100), (1, 1), (0, 100), (2, 3)]:
        algorithm.schedule.assign(client, 0)
        algorithm.receive(one_hot(client, examples, base=torch.zeros(CLIENTS)))
    torch.testing.assert_close(algorithm.model, -torch.tensor([0.5, 0.125, 0.375, 0.0]))


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ((0.0, 0.0, 0.0), (0, 0, 0)),
        ((0.0, 2.0, 0.0), (0, 2, 0)),  # as if it were alone
        ((9.0, 0.0, 2.0), (9, 0, 2)),  # as if there were two
        ((0.0, 1.0, 9.0, 2.0), (0, 1, 3, 2)),
    ],
)
def test_updates_may_weigh_nothing(weights, expected, plan):
    algorithm = started(Port(min_clients=4), plan)
    for client, weight in enumerate(weights):  # a weight such as n · exp(−a τ) becomes 0 when τ is large
        algorithm.buffer.add(one_hot(client, 5), weight)
    entries = algorithm.buffer.release(0).entries
    assert {entry.update.client: entry.weight for entry in entries} == dict(enumerate(expected))


updates = st.lists(st.tuples(st.integers(0, CLIENTS - 1), st.integers(0, 1000)), min_size=1, max_size=12)


@given(updates=updates, max_share=st.sampled_from([0.5, 0.6, 0.9]), saved_at=st.integers(0, 12))
def test_a_share_is_lowered_exactly_to_the_limit_in_any_order(plan, updates, max_share, saved_at):
    algorithm, other = (Port(min_clients=99, concurrency=99) for _ in range(2))
    for each in (algorithm, other):
        each.wrap(cap_share(max_share))
        each.start(torch.zeros(CLIENTS), clients=99)
    buffer = algorithm.buffer
    for number, (client, examples) in enumerate(updates):
        if number == saved_at:
            other.load_state_dict(algorithm.state_dict())
            buffer = other.buffer
        buffer.add(one_hot(client, examples), float(examples))
        assert buffer.count == number + 1
    found = torch.zeros(CLIENTS, dtype=torch.float64)
    for entry in buffer.release(0).entries:
        found[entry.update.client] += entry.weight

    expected = torch.zeros(CLIENTS, dtype=torch.float64)
    for client, examples in updates:
        expected[client] += examples
    if (expected > 0).sum() >= 3:
        largest = expected.argmax()
        others = expected.sum() - expected[largest]
        expected[largest] = min(expected[largest], others * max_share / (1 - max_share))
    torch.testing.assert_close(found, expected)
    assert buffer.count == 0


def test_a_saved_buffer_goes_on_as_it_was(plan, same_state):
    first, second = (started(FedNova(cohort=3), plan) for _ in range(2))
    first.receive(one_hot(0, 7, 3.0))
    first.receive(one_hot(1, 900, 2.0))
    second.load_state_dict(first.state_dict())
    assert same_state(second.state_dict(), first.state_dict())
    for algorithm in (first, second):
        algorithm.receive(one_hot(2, 5, 4.0))
    assert torch.equal(first.model, second.model)


def test_an_algorithm_without_a_buffer_cannot_be_wrapped():
    with pytest.raises(ValueError, match=r"^max_share does not go with fedplain, .*: set max_share = 1$"):
        FedPlain().wrap(cap_share(0.5))
