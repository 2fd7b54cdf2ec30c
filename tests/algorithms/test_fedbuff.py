import math
import random

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import FedBuff, Update
from offbeat.algorithms.components.buffers.robust import robust
from offbeat.algorithms.components.buffers.wrappers import clip
from offbeat.algorithms.components.server_optimizer import adagrad, adam
from offbeat.algorithms.components.weights import hinge, polynomial
from tests.algorithms.case import Case
from tests.effort import cases


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


def test_two_buffers_by_hand(begin, plan, upload):
    algorithm = begin(FedBuff(buffer_size=2, staleness=polynomial(a=1), concurrency=3), (1.0, 1.0))
    assert algorithm.receive(upload(0, 0, 2, 0)) is False
    assert algorithm.model.tolist() == [1, 1]
    assert algorithm.receive(upload(1, 0, 0, 4)) is True
    assert algorithm.model.tolist() == [0, -1]  # (1, 1) − (2, 4)/2
    algorithm.assign(3, plan)
    assert algorithm.receive(upload(2, 0, 4, 4)) is False  # τ = 1: ½
    assert algorithm.receive(upload(3, 1, 2, 0)) is True  # τ = 0: 1
    assert algorithm.model.tolist() == [-2, -2]  # (0, −1) − (2 + 2, 2 + 0)/2
    assert algorithm.version == 2


@settings(max_examples=cases(40))
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
