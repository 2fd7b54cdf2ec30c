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
from tests.effort import cases

CASES = [
    Case("fedavg", lambda: FedAvg(cohort=2, server_lr=0.9), places=2),
    Case("fedavg over-selecting", lambda: FedAvg(cohort=3, over_selection=1.3, weighting="uniform"), places=4),
    Case("fedavg everybody", lambda: FedAvg(cohort=6, over_selection=2.0, server_optimizer=momentum()), places=6),
]


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
    algorithm = begin(FedAvg(cohort=2, **parameters), (1.0, 1.0))
    assert algorithm.receive(upload(0, 0, 4, 0, examples=1)) is False
    assert algorithm.receive(upload(1, 0, 0, 8, examples=3)) is True
    assert algorithm.model.tolist() == expected


@settings(max_examples=cases(60))
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
