import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import FedAvg, Update
from offbeat.algorithms.components.server_optimizer import momentum
from tests.algorithms.case import Case

CASES = [
    Case("fedavg", lambda: FedAvg(cohort=2, server_lr=0.9), places=2),
    Case("fedavg over-selecting", lambda: FedAvg(cohort=3, over_selection=1.3, weighting="uniform"), places=4),
    Case("fedavg everybody", lambda: FedAvg(cohort=6, over_selection=2.0, server_optimizer=momentum()), places=6),
]


@pytest.fixture
def begin(plan):
    """Return a function that starts FedAvg and gives work to clients 0, 1, 2, … until nobody is wanted."""

    def make(model=(0.0,), clients=10, **parameters):
        algorithm = FedAvg(**parameters)
        algorithm.start(torch.tensor(model), clients)
        for client in range(algorithm.slots()):
            algorithm.assign(client, plan)
        return algorithm

    return make


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"weighting": "examples"}, [0.0, -5.0]),
        ({"weighting": "uniform"}, [-1.0, -3.0]),
        ({"weighting": "examples", "server_lr": 0.5}, [0.5, -2.0]),
        ({"weighting": "uniform", "server_lr": 2.0}, [-3.0, -7.0]),
    ],
)
def test_weighted_mean_by_hand(begin, upload, parameters, expected):
    algorithm = begin(model=(1.0, 1.0), cohort=2, **parameters)
    assert algorithm.receive(upload(0, 0, 4, 0, examples=1)) is False
    assert algorithm.receive(upload(1, 0, 0, 8, examples=3)) is True
    assert algorithm.model.tolist() == expected


def test_examples_is_the_default(begin, upload):
    algorithm = begin(cohort=2)
    algorithm.receive(upload(0, 0, 4, examples=3))
    algorithm.receive(upload(1, 0, 8, examples=1))
    assert algorithm.model.tolist() == [-5]


def test_each_round_weighs_afresh(begin, upload, plan):
    algorithm = begin(cohort=1)
    algorithm.receive(upload(0, 0, 2, examples=100))
    algorithm.assign(5, plan)
    algorithm.receive(upload(5, 1, 3, examples=7))
    assert algorithm.model.tolist() == [-5]


def test_one_full_batch_step_of_everybody_is_gradient_descent_by_hand(begin, upload):
    # f_i(w) = mean over the client's x of (w − x)²/2; the clients hold {1, 2, 3} and {10}; w = 0, lr = 0.5.
    algorithm = begin(cohort=2, clients=2)
    algorithm.receive(upload(0, 0, 0.5 * (0 - 2), examples=3))
    algorithm.receive(upload(1, 0, 0.5 * (0 - 10), examples=1))
    assert algorithm.model.tolist() == [2.0]


def test_many_full_batch_rounds_are_gradient_descent_on_the_pooled_data(upload, plan):
    rng = np.random.default_rng(0)
    data = [(rng.standard_normal((n, 3)), rng.standard_normal(n)) for n in (2, 5, 11, 1)]
    pooled = tuple(np.concatenate(parts) for parts in zip(*data, strict=True))

    def gradient(inputs, targets, model):
        return inputs.T @ (inputs @ model - targets) / len(targets)

    algorithm, central = FedAvg(cohort=4), np.zeros(3)
    algorithm.start(torch.zeros(3), clients=4)
    for version in range(30):
        start = algorithm.model.numpy().astype(np.float64)
        for client in range(4):
            algorithm.assign(client, plan)
        for client in (2, 0, 3, 1):
            delta = 0.1 * gradient(*data[client], start)
            assert algorithm.receive(upload(client, version, *delta, examples=len(data[client][1]))) is (client == 1)
        central -= 0.1 * gradient(*pooled, central)
    np.testing.assert_allclose(algorithm.model.numpy(), central, atol=2e-6)


@pytest.mark.parametrize(
    ("cohort", "over_selection", "clients", "asked"),
    [
        (10, 1.0, 100, 10),
        (10, 1.1, 100, 11),
        (10, 1.3, 100, 13),
        (10, 1.25, 100, 13),
        (3, 1.1, 100, 4),
        (100, 1.1, 1000, 110),
        (1000, 1.1, 10_000, 1100),
        (10, 1.01, 100, 11),
        (1, 3.0, 100, 3),
        (10, 1.3, 12, 12),
        (10, 1.3, 10, 10),
    ],
)
def test_over_selection_asks_the_ceiling_but_never_more_than_there_are(cohort, over_selection, clients, asked):
    algorithm = FedAvg(cohort=cohort, over_selection=over_selection)
    algorithm.start(torch.zeros(1), clients)
    assert algorithm.slots() == asked


@given(cohort=st.integers(1, 2000), percent=st.integers(100, 300))
def test_over_selection_is_exact_for_whole_percents(cohort, percent):
    algorithm = FedAvg(cohort=cohort, over_selection=percent / 100)
    algorithm.start(torch.zeros(1), clients=6000)
    assert algorithm.slots() == -(-cohort * percent // 100)


def test_over_selection_takes_the_first_m_and_the_rest_are_unwanted(begin, upload):
    algorithm = begin(cohort=2, over_selection=2.0)
    assert algorithm.slots() == 0
    assert algorithm.receive(upload(3, 0, 2)) is False
    assert algorithm.receive(upload(1, 0, 4)) is True
    assert algorithm.slots() == 4
    assert not algorithm.wants(0, 0)
    assert algorithm.receive(upload(0, 0, 100)) is False
    assert algorithm.receive(upload(2, 0, 100)) is False
    assert (algorithm.version, algorithm.round, algorithm.model.tolist()) == (1, 1, [-3])


def test_the_first_m_may_be_in_before_everybody_was_asked(upload, plan):
    algorithm = FedAvg(cohort=1, over_selection=3.0)
    algorithm.start(torch.zeros(1), clients=5)
    algorithm.assign(4, plan)
    assert algorithm.receive(upload(4, 0, 2)) is True
    assert algorithm.slots() == 3


def test_over_selection_outlasts_losses(begin, upload):
    algorithm = begin(cohort=2, over_selection=1.5)
    assert algorithm.drop(0, 0) is False
    assert algorithm.receive(upload(1, 0, 2)) is False
    assert algorithm.receive(upload(2, 0, 4)) is True
    assert algorithm.model.tolist() == [-3]


def test_a_round_ends_with_those_left(begin, upload):
    algorithm = begin(cohort=3)
    assert algorithm.receive(upload(1, 0, 2, examples=1)) is False
    assert algorithm.receive(upload(2, 0, 6, examples=3)) is False
    assert algorithm.drop(0, 0) is True
    assert (algorithm.version, algorithm.round, algorithm.model.tolist()) == (1, 1, [-5])


def test_a_lost_client_is_not_replaced(begin, plan):
    algorithm = begin(cohort=3)
    algorithm.drop(0, 0)
    assert algorithm.slots() == 0
    with pytest.raises(ValueError, match="client 7 cannot be assigned"):
        algorithm.assign(7, plan)


def test_a_round_is_open_while_somebody_is_still_to_be_asked(upload, plan):
    algorithm = FedAvg(cohort=2)
    algorithm.start(torch.zeros(1), clients=5)
    algorithm.assign(0, plan)
    assert algorithm.drop(0, 0) is False
    assert (algorithm.round, algorithm.slots()) == (0, 1)
    algorithm.assign(1, plan)
    assert algorithm.receive(upload(1, 0, 3)) is True
    assert algorithm.model.tolist() == [-3]


def test_a_round_whose_clients_are_all_lost_makes_no_version_and_a_new_round(begin, upload):
    algorithm = begin(cohort=2)
    before = algorithm.model
    assert algorithm.drop(0, 0) is False
    assert algorithm.drop(1, 0) is False
    assert (algorithm.version, algorithm.round, algorithm.slots()) == (0, 1, 2)
    assert torch.equal(algorithm.model, before)
    for client in (0, 1):
        assert not algorithm.wants(client, 0)
        assert algorithm.receive(upload(client, 0, 100)) is False
    assert algorithm.slots() == 2


def test_nothing_of_a_lost_round_is_left_in_the_next(begin, upload, plan):
    algorithm = begin(cohort=2)
    algorithm.drop(0, 0)
    algorithm.drop(1, 0)
    algorithm.assign(1, plan)
    algorithm.assign(2, plan)
    assert algorithm.receive(upload(1, 0, 2)) is False
    assert algorithm.receive(upload(2, 0, 4)) is True
    assert (algorithm.version, algorithm.round, algorithm.model.tolist()) == (1, 2, [-3])


def test_a_lost_client_that_comes_while_the_round_is_open_counts_once(begin, upload):
    algorithm = begin(cohort=3)
    algorithm.drop(0, 0)
    assert algorithm.wants(0, 0)
    assert algorithm.receive(upload(0, 0, 3)) is False
    assert algorithm.receive(upload(0, 0, 300)) is False
    assert algorithm.receive(upload(1, 0, 6)) is False
    assert algorithm.drop(0, 0) is False
    assert algorithm.receive(upload(2, 0, 9)) is True
    assert algorithm.model.tolist() == [-6]


def test_a_lost_client_that_comes_after_the_round_is_unwanted(begin, upload):
    algorithm = begin(cohort=2)
    algorithm.drop(0, 0)
    assert algorithm.receive(upload(1, 0, 2)) is True
    assert not algorithm.wants(0, 0)
    assert algorithm.receive(upload(0, 0, 100)) is False
    assert algorithm.model.tolist() == [-2]


def test_dropping_twice_does_not_end_the_round_early(begin):
    algorithm = begin(cohort=2)
    assert [algorithm.drop(0, 0) for _ in range(3)] == [False] * 3
    assert algorithm.round == 0


def test_no_client_twice_in_one_round_even_when_it_was_heard(begin, upload, plan, same_state):
    algorithm = FedAvg(cohort=3)
    algorithm.start(torch.zeros(1), clients=5)
    algorithm.assign(0, plan)
    algorithm.receive(upload(0, 0, 1))
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match="client 0 cannot be assigned"):
        algorithm.assign(0, plan)
    assert same_state(algorithm.state_dict(), before)


def test_the_next_round_takes_the_same_clients_again(begin, upload, plan):
    algorithm = begin(cohort=1)
    algorithm.receive(upload(0, 0, 1))
    algorithm.assign(0, plan)
    assert algorithm.wants(0, 1)
    assert not algorithm.wants(0, 0)


def test_the_plan_is_the_runs(plan):
    algorithm = FedAvg(cohort=1)
    algorithm.start(torch.zeros(1), clients=1)
    assert algorithm.assign(0, plan) == plan


def test_a_cohort_larger_than_the_population_is_refused_and_changes_nothing(begin, same_state):
    algorithm = begin(cohort=4)
    before = algorithm.state_dict()
    with pytest.raises(ValueError, match="cohort must be at most the number of clients, 3, got 4"):
        algorithm.start(torch.ones(2), clients=3)
    assert same_state(algorithm.state_dict(), before)
    algorithm.start(torch.zeros(1), clients=4)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"cohort": 0}, "cohort must be a whole number of at least 1, got 0"),
        ({"cohort": 2.5}, "cohort"),
        ({"server_lr": 0.0}, "server_lr must be greater than 0"),
        ({"server_lr": -1.0}, "server_lr"),
        ({"server_lr": math.nan}, "server_lr"),
        ({"weighting": "size"}, "weighting must be 'examples' or 'uniform', got 'size'"),
        ({"over_selection": 0.99}, "over_selection must be in \\[1, 1000\\], got 0.99"),
        ({"over_selection": math.inf}, "over_selection"),
        ({"over_selection": math.nan}, "over_selection"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        FedAvg(**parameters)


def test_defaults():
    algorithm = FedAvg()
    assert (algorithm.cohort, algorithm.server_lr, algorithm.weighting, algorithm.over_selection) == (
        10,
        1.0,
        "examples",
        1.0,
    )
    assert (algorithm.name, algorithm.payload) == ("fedavg", "delta")
    assert (algorithm.buffer.linear, algorithm.buffer.releases) == (True, 1)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    cohort=st.integers(1, 5),
    over_selection=st.sampled_from([1.0, 1.2, 2.0]),
    weighting=st.sampled_from(["examples", "uniform"]),
    loss=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
)
def test_every_round_ends_and_agrees_with_numpy(plan, seed, cohort, over_selection, weighting, loss):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    algorithm = FedAvg(cohort=cohort, over_selection=over_selection, weighting=weighting, server_lr=0.7)
    algorithm.start(torch.ones(3), clients=7)
    model, version, dropped_long_ago = np.ones(3), 0, []
    for number in range(6):
        assert algorithm.round == number
        asked = rng.sample(range(7), algorithm.slots())
        assert len(asked) == min(7, math.ceil(cohort * over_selection - 1e-9))
        for client in asked:
            algorithm.assign(client, plan)
        events = []
        for client in asked:
            lost, late = rng.random() < loss, rng.random() < 0.5
            events += [(rng.random(), "lost", client)] * lost
            events += [(1 + rng.random() if lost else rng.random(), "arrives", client)] * (late or not lost)
        waiting, heard, ended, made = set(asked), {}, False, False
        for _, event, client in sorted(events):
            if ended:
                if event == "lost":
                    assert algorithm.drop(client, version - made) is False
                elif made:
                    assert not algorithm.wants(client, version - 1)
                continue
            waiting.discard(client)
            if event == "lost":
                advanced = algorithm.drop(client, version)
            else:
                delta, examples = numbers.standard_normal(3), rng.randint(1, 50)
                heard[client] = delta, examples if weighting == "examples" else 1
                vector = torch.tensor(delta, dtype=torch.float32)
                assert algorithm.wants(client, version)
                advanced = algorithm.receive(Update(client, version, vector, examples, 1, 1.0))
            ended = len(heard) == cohort or not waiting
            made = ended and bool(heard)
            assert advanced is made
            if made:
                weights = np.array([weight for _, weight in heard.values()], dtype=float)
                deltas = np.stack([delta for delta, _ in heard.values()])
                model = model - 0.7 * (weights / weights.sum()) @ deltas
                version += 1
            assert algorithm.version == version
            np.testing.assert_allclose(algorithm.model.numpy(), model, rtol=1e-5, atol=1e-5)
        assert ended
        assert algorithm.round == number + 1
        dropped_long_ago += asked
        assert not any(algorithm.wants(client, version) for client in dropped_long_ago)
