import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import FedNova, Update
from offbeat.algorithms.components.server_optimizer import adam, momentum
from tests.algorithms.case import Case
from tests.effort import cases

CASES = [
    Case("fednova", lambda: FedNova(cohort=2, server_lr=0.9), places=2, also_broken=({"normaliser": 1e-39},)),
    Case("fednova over-selecting", lambda: FedNova(cohort=3, over_selection=1.3, server_optimizer=adam()), places=4),
]


def update(client, version, *entries, examples=1, a=1.0):
    vector = torch.tensor(entries, dtype=torch.float32)
    return Update(client, version, vector, examples, steps=math.ceil(a), normaliser=a)


@pytest.mark.parametrize(("server_lr", "expected"), [(1.0, [-3.0, -1.0]), (0.5, [-1.0, 0.0])])
def test_a_round_by_hand(server_lr, expected, begin):
    # p = (⅔, ⅓) and a = (1, 4): Σ p a = 2, Σ p Δ/a = (2, 1), so the mean delta is (4, 2); FedAvg's would be (2, 4).
    algorithm = begin(FedNova(cohort=2, server_lr=server_lr), (1.0, 1.0))
    assert algorithm.receive(update(0, 0, 3, 0, examples=2, a=1.0)) is False
    assert algorithm.receive(update(1, 0, 0, 12, examples=1, a=4.0)) is True
    assert algorithm.model.tolist() == expected


@settings(max_examples=cases(60))
@given(
    seed=st.integers(0, 2**32),
    cohort=st.integers(1, 5),
    a_of=st.sampled_from([(1, 2, 3, 50), (0, 1, 7.5), (0.01, 3)]),
    server_lr=st.sampled_from([1.0, 0.3]),
)
def test_random_rounds_agree_with_numpy(plan, seed, cohort, a_of, server_lr):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    algorithm = FedNova(cohort=cohort, server_lr=server_lr)
    algorithm.start(torch.ones(3), clients=6)
    model, version, scale = np.ones(3), 0, 1.0
    for _ in range(8):
        heard = []
        clients = rng.sample(range(6), cohort)
        for client in clients:
            algorithm.assign(client, plan)
        for client in clients:
            delta, n, a = numbers.standard_normal(3), rng.randint(1, 99), float(rng.choice(a_of))
            heard += [(delta, n, a)] * (a > 0)
            made = algorithm.receive(update(client, version, *delta, examples=n, a=a))
            assert made is (client == clients[-1] and len(heard) > 0)
        if heard:
            deltas, n, a = (np.array(column) for column in zip(*heard, strict=True))
            p = n / n.sum()
            step = (p @ a) * (p / a) @ deltas
            model, version, scale = model - server_lr * step, version + 1, max(scale, np.abs(step).max())
        assert algorithm.version == version
    np.testing.assert_allclose(algorithm.model.numpy(), model, rtol=0, atol=5e-6 * scale)


def test_a_client_without_a_step_fills_its_place_but_does_not_count(begin, deferred, vector):
    algorithm = begin(FedNova(cohort=3))
    never = deferred(vector(1000))
    algorithm.receive(update(0, 0, 4, examples=1, a=2.0))
    assert algorithm.receive(Update(1, 0, never, 50, steps=0, normaliser=0.0)) is False
    assert not algorithm.wants(1, 0)
    assert algorithm.receive(update(2, 0, 4, examples=1, a=2.0)) is True
    assert algorithm.model.tolist() == [-4]
    assert never.resolved == 0


@pytest.mark.parametrize("ended_by", ["arrival", "drop", "tick"])
def test_a_round_without_any_step_does_not_make_a_version(ended_by, begin):
    algorithm = begin(FedNova(cohort=2, server_optimizer=momentum()))
    assert algorithm.receive(update(0, 0, 7, a=0.0)) is False
    if ended_by == "arrival":
        made = algorithm.receive(update(1, 0, 7, a=0.0))
    else:
        made = algorithm.drop(1, 0) if ended_by == "drop" else algorithm.tick()
    assert made is False
    assert (algorithm.version, algorithm.round, algorithm.slots(), algorithm.model.tolist()) == (0, 1, 2, [0])
    assert not algorithm.wants(0, 0)


def test_metadata_may_be_numpy_numbers(begin):
    algorithm = begin(FedNova(cohort=2))
    algorithm.receive(Update(0, 0, torch.ones(1), np.int64(3), 2, np.float32(2)))
    state = algorithm.state_dict()
    assert (type(state["buffer.tallies.examples"]), type(state["buffer.tallies.examples_times_a"])) == (float, float)
    with pytest.raises(ValueError, match="normaliser"):
        algorithm.receive(Update(1, 0, torch.ones(1), np.int64(3), 2, np.float64(1e-310)))
