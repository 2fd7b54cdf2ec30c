import random

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import FedAsync, Update
from offbeat.algorithms.components.weights import hinge, polynomial
from tests.algorithms.case import Case
from tests.effort import cases

CASES = [Case("fedasync", lambda: FedAsync(concurrency=3), places=3)]


def test_arrivals_by_hand(begin, plan, upload):
    algorithm = begin(FedAsync(mixing_alpha=0.5, staleness=polynomial(a=1), concurrency=3), (0.0, 0.0))
    assert algorithm.receive(upload(0, 0, 4, 8)) is True  # α = ½
    assert algorithm.model.tolist() == [2, 4]
    assert algorithm.receive(upload(1, 0, 6, 0)) is True  # τ = 1: α = ¼
    assert algorithm.model.tolist() == [3, 3]
    algorithm.assign(3, plan)
    assert algorithm.receive(upload(3, 2, 1, -1)) is True  # fresh again: α = ½
    assert algorithm.model.tolist() == [2, 1]
    assert algorithm.receive(upload(2, 0, 10, 9)) is True  # τ = 3: α = ⅛
    assert algorithm.model.tolist() == [3, 2]
    assert algorithm.version == 4


@settings(max_examples=cases(40))
@given(seed=st.integers(0, 2**32), alpha=st.sampled_from([0.1, 0.6, 1.0]), concurrency=st.integers(1, 5))
def test_random_arrivals_agree_with_numpy(plan, seed, alpha, concurrency):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    algorithm = FedAsync(mixing_alpha=alpha, staleness=hinge(a=0.5, b=1), concurrency=concurrency)
    algorithm.start(torch.ones(3), clients=8)
    model, version, at_work = np.ones(3), 0, {}
    for _ in range(40):
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
            base = at_work.pop(client)
            end = numbers.standard_normal(3)
            factor = alpha * (1 if version - base <= 1 else 1 / (0.5 * (version - base - 1) + 1))
            model = (1 - factor) * model + factor * end
            assert algorithm.receive(Update(client, base, torch.tensor(end, dtype=torch.float32), 1, 1, 1.0)) is True
            version += 1
    assert algorithm.version == version
    np.testing.assert_allclose(algorithm.model.numpy(), model, atol=2e-6)
