import itertools
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import FedBuff, Update
from offbeat.algorithms.components.buffers.robust import robust
from offbeat.algorithms.components.buffers.wrappers import clip
from offbeat.algorithms.components.server_optimizer import adagrad, adam
from offbeat.algorithms.components.staleness import constant, exponential, hinge, polynomial
from tests.algorithms.case import Case


def wrapped(*wrappers):
    """Return what makes a FedBuff with wrappers around its buffer."""

    def make():
        algorithm = FedBuff(buffer_size=3, concurrency=4)
        for wrapper in wrappers:
            algorithm.wrap(wrapper)
        return algorithm

    return make


CASES = [
    Case("fedbuff", lambda: FedBuff(buffer_size=3, concurrency=4), places=4),
    Case("fedbuff one by one", lambda: FedBuff(buffer_size=1, staleness=hinge(1, 1), concurrency=2), places=2),
    Case("fedbuff adam", lambda: FedBuff(buffer_size=2, concurrency=6, server_optimizer=adam()), places=6),
    Case("fedbuff clipped", wrapped(clip(0.5)), places=4),
    Case("fedbuff krum, clipped", wrapped(robust("krum"), clip(0.5)), places=4),
    Case("fedbuff trimmed mean", wrapped(robust("trimmed_mean")), places=4),
    Case("fedbuff adagrad", lambda: FedBuff(buffer_size=2, concurrency=6, server_optimizer=adagrad()), places=6),
]


def test_two_buffers_by_hand(plan, upload):
    algorithm = FedBuff(buffer_size=2, staleness=polynomial(a=1))
    algorithm.start(torch.tensor([1.0, 1.0]), clients=9)
    for client in (0, 1, 2):
        algorithm.assign(client, plan)
    assert algorithm.receive(upload(0, 0, 2, 0)) is False
    assert algorithm.model.tolist() == [1, 1]
    assert algorithm.receive(upload(1, 0, 0, 4)) is True
    assert algorithm.model.tolist() == [0, -1]  # (1, 1) − (2, 4)/2
    algorithm.assign(3, plan)
    assert algorithm.receive(upload(2, 0, 4, 4)) is False  # τ = 1: ½
    assert algorithm.receive(upload(3, 1, 2, 0)) is True  # τ = 0: 1
    assert algorithm.model.tolist() == [-2, -2]  # (0, −1) − (2 + 2, 2 + 0)/2
    assert algorithm.version == 2


def test_server_lr_scales_the_mean(plan, upload):
    algorithm = FedBuff(buffer_size=2, server_lr=0.25)
    algorithm.start(torch.zeros(1), clients=2)
    for client in (0, 1):
        algorithm.assign(client, plan)
        algorithm.receive(upload(client, 0, 8))
    assert algorithm.model.tolist() == [-2]


def test_the_sum_is_divided_by_the_buffer_size_and_not_by_the_weights_or_the_clients(plan, upload):
    algorithm = FedBuff(buffer_size=4, staleness=polynomial(a=1), concurrency=50)
    algorithm.start(torch.zeros(1), clients=100)
    for client in range(8):
        algorithm.assign(client, plan)
    for client in range(4):
        algorithm.receive(upload(client, 0, 0))
    for client in range(4, 8):
        algorithm.receive(upload(client, 0, 16))
    assert algorithm.model.tolist() == [-8]


def test_a_delta_is_taken_off_the_current_model_and_not_off_the_clients_own(plan, upload):
    algorithm = FedBuff(buffer_size=1, staleness=constant())
    algorithm.start(torch.tensor([100.0]), clients=3)
    algorithm.assign(0, plan)
    algorithm.assign(1, plan)
    algorithm.receive(upload(1, 0, 30))
    algorithm.receive(upload(0, 0, 5))
    assert algorithm.model.tolist() == [65]


def test_staleness_is_counted_to_the_use_of_the_update(plan, upload):
    algorithm = FedBuff(buffer_size=1, staleness=polynomial(a=1))
    algorithm.start(torch.zeros(1), clients=9)
    algorithm.assign(0, plan)
    algorithm.assign(1, plan)
    for version in range(3):
        algorithm.assign(5, plan)
        algorithm.receive(upload(5, version, 0))
    algorithm.receive(upload(0, 0, 8))  # τ = 3
    assert algorithm.model.tolist() == [-2]
    algorithm.receive(upload(1, 0, 10))  # τ = 4
    assert algorithm.model.tolist() == [-4]


def test_a_dropped_client_gets_staler_and_still_counts(plan, upload):
    algorithm = FedBuff(buffer_size=1, staleness=polynomial(a=1), concurrency=1)
    algorithm.start(torch.zeros(1), clients=9)
    algorithm.assign(0, plan)
    assert algorithm.drop(0, 0) is False
    assert algorithm.slots() == 1
    algorithm.assign(1, plan)
    algorithm.receive(upload(1, 0, 0))
    assert algorithm.receive(upload(0, 0, 8)) is True
    assert algorithm.model.tolist() == [-4]
    assert algorithm.slots() == 1


@pytest.mark.parametrize("staleness", [polynomial(a=0.5), constant(), polynomial(2), hinge(), exponential(3)], ids=str)
def test_a_fresh_update_counts_one(staleness, plan, upload):
    algorithm = FedBuff(buffer_size=1, staleness=staleness)
    algorithm.start(torch.zeros(1), clients=1)
    algorithm.assign(0, plan)
    algorithm.receive(upload(0, 0, 3, examples=17))
    assert algorithm.model.tolist() == [-3]


@pytest.mark.parametrize("server_lr", [1.0, 0.5, 0.125])
def test_one_constant_weight_is_plain_asynchronous_sgd_bit_for_bit(server_lr, plan, upload):
    rng, numbers = random.Random(1), np.random.default_rng(1)
    algorithm = FedBuff(buffer_size=1, staleness=constant(), server_lr=server_lr)
    model = torch.tensor(numbers.standard_normal(33), dtype=torch.float32)
    algorithm.start(model, clients=5)
    bases = {}
    for version in range(60):
        for client in set(range(5)) - set(bases):
            algorithm.assign(client, plan)
            bases[client] = version
        client = rng.choice(sorted(bases))
        delta = torch.tensor(numbers.standard_normal(33), dtype=torch.float32)
        assert algorithm.receive(upload(client, bases.pop(client), *delta.tolist())) is True
        model = model - server_lr * delta
        assert torch.equal(algorithm.model, model)


def test_the_order_within_a_buffer_changes_only_rounding(plan, upload):
    deltas = np.random.default_rng(2).standard_normal((4, 5))
    models = []
    for order in itertools.permutations(range(4)):
        algorithm = FedBuff(buffer_size=4)
        algorithm.start(torch.zeros(5), clients=4)
        for client in range(4):
            algorithm.assign(client, plan)
        assert [algorithm.receive(upload(client, 0, *deltas[client])) for client in order] == [False] * 3 + [True]
        models.append(algorithm.model)
    assert len(models) == 24
    for model in models:
        np.testing.assert_allclose(model.numpy(), -deltas.mean(axis=0), atol=1e-6)


def test_the_same_client_may_fill_a_buffer_alone(plan, upload):
    algorithm = FedBuff(buffer_size=3)
    algorithm.start(torch.zeros(1), clients=5)
    made = []
    for delta in (3, 6, 9):
        algorithm.assign(4, plan)
        made.append(algorithm.receive(upload(4, 0, delta)))
    assert made == [False, False, True]
    assert algorithm.model.tolist() == [-6]


def test_the_plan_is_the_runs(plan):
    algorithm = FedBuff()
    algorithm.start(torch.zeros(1), clients=1)
    assert algorithm.assign(0, plan) == plan


def test_defaults():
    algorithm = FedBuff()
    assert (algorithm.buffer_size, algorithm.server_lr, algorithm.concurrency) == (10, 1.0, 100)
    assert algorithm.staleness == polynomial(a=0.5)
    assert (algorithm.name, algorithm.payload) == ("fedbuff", "delta")
    assert (algorithm.buffer.linear, algorithm.buffer.releases) == (True, 1)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"buffer_size": 0}, "buffer_size must be a whole number of at least 1"),
        ({"buffer_size": 2.0}, "buffer_size"),
        ({"server_lr": 0.0}, "server_lr must be greater than 0"),
        ({"server_lr": math.inf}, "server_lr"),
        ({"concurrency": 0}, "concurrency must be a whole number of at least 1"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        FedBuff(**parameters)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), size=st.integers(1, 6), concurrency=st.integers(1, 6))
def test_random_arrivals_agree_with_numpy(plan, seed, size, concurrency):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    algorithm = FedBuff(buffer_size=size, server_lr=0.7, staleness=polynomial(a=0.5), concurrency=concurrency)
    algorithm.start(torch.ones(3), clients=8)
    model, version, buffer, at_work = np.ones(3), 0, [], {}
    for _ in range(50):
        idle = [client for client in range(8) if client not in at_work]
        if algorithm.slots() > 0 and idle and rng.random() < 0.6:
            client = rng.choice(idle)
            algorithm.assign(client, plan)
            at_work[client] = version
        elif at_work:
            client = rng.choice(list(at_work))
            if rng.random() < 0.2:
                algorithm.drop(client, at_work[client])
                continue
            base, delta = at_work.pop(client), numbers.standard_normal(3)
            buffer.append(delta / math.sqrt(1 + version - base))
            full = len(buffer) == size
            vector = torch.tensor(delta, dtype=torch.float32)
            assert algorithm.receive(Update(client, base, vector, rng.randint(1, 99), 1, 1.0)) is full
            if full:
                model, version, buffer = model - 0.7 * sum(buffer) / size, version + 1, []
    assert algorithm.version == version
    np.testing.assert_allclose(algorithm.model.numpy(), model, atol=5e-6)
