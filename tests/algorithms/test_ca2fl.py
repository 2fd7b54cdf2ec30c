import numpy as np
import torch

from offbeat.algorithms import CA2FL, Update
from tests.algorithms.case import Case

CASES = [
    Case("ca2fl", lambda: CA2FL(buffer_size=2, concurrency=3), places=3, also_broken=({"since": 10**6},)),
    Case(
        "ca2fl keeping",
        lambda: CA2FL(buffer_size=4, concurrency=6, server_lr=0.9, server_keeps_updates=True),
        places=6,
        also_broken=({"since": -1},),
    ),
]


def difference(client, version, since, *values):
    vector = torch.tensor(values, dtype=torch.float32)
    return Update(client, version, vector, examples=1, steps=1, normaliser=1.0, since=since)


def test_two_buffers_by_hand(plan):
    algorithm = CA2FL(buffer_size=2, server_lr=0.5, weighting="uniform", concurrency=4)
    algorithm.start(torch.tensor([20.0]), clients=4)
    for client in range(3):
        algorithm.assign(client, plan)
    assert algorithm.receive(difference(0, 0, None, 8)) is False
    assert algorithm.receive(difference(1, 0, None, 4)) is True
    assert algorithm.model.tolist() == [17]  # v = 0 + (8 + 4)/2; then h = (8 + 4)/4 = 3
    algorithm.assign(0, plan)
    assert algorithm.receive(difference(0, 1, 0, -6)) is False  # a new update of 2
    assert algorithm.receive(difference(2, 0, None, 10)) is True
    assert algorithm.model.tolist() == [14.5]  # v = 3 + ((2 − 8) + (10 − 0))/2 = 5
    algorithm.assign(0, plan)
    algorithm.assign(1, plan)
    algorithm.receive(difference(0, 2, 1, 0))
    algorithm.receive(difference(1, 2, 0, 0))
    assert algorithm.model.tolist() == [12.5]  # v = h = (2 + 4 + 10)/4: nothing has changed


def test_the_difference_is_weighted_by_the_share(plan):
    algorithm = CA2FL(buffer_size=1, concurrency=2)
    algorithm.start(torch.tensor([0.0]), clients=2, data_weights=torch.tensor([3.0, 1.0]))
    algorithm.assign(0, plan)
    algorithm.receive(difference(0, 0, None, 8))
    assert algorithm.model.tolist() == [-12]  # p N = 3/4 · 2


def test_a_client_that_comes_twice_counts_with_its_newer_update(plan):
    algorithm = CA2FL(buffer_size=2, weighting="uniform", concurrency=1)
    algorithm.start(torch.tensor([0.0]), clients=4)
    for since, change in ((None, 8), (0, -2)):
        algorithm.assign(0, plan)
        algorithm.receive(difference(0, 0, since, change))
    assert algorithm.model.tolist() == [-3]  # (6 − 0)/2


def test_a_random_script_of_arrivals_agrees_with_numpy(plan):
    """The paper's Algorithm 2 over a table of all h_i; no client comes twice before a step."""
    numbers = np.random.default_rng(4)
    algorithm = CA2FL(buffer_size=3, server_lr=0.3, weighting="uniform", concurrency=5)
    algorithm.start(torch.zeros(4), clients=8)
    cache, since, model = np.zeros((8, 4)), [None] * 8, np.zeros(4)
    at_work, buffer = {}, {}
    for _ in range(240):
        idle = [client for client in range(8) if client not in at_work and client not in buffer]
        for client in numbers.permutation(idle)[: algorithm.slots()]:
            algorithm.assign(int(client), plan)
            at_work[int(client)] = algorithm.version, model
        client = int(numbers.choice(list(at_work)))
        version, start = at_work.pop(client)
        buffer[client] = start - numbers.standard_normal(4)  # drawn to a random point
        made = algorithm.receive(difference(client, version, since[client], *(buffer[client] - cache[client])))
        since[client] = version
        if len(buffer) == 3:
            v = cache.mean(axis=0) + sum(delta - cache[i] for i, delta in buffer.items()) / 3
            model = model - 0.3 * v
            for i, delta in buffer.items():
                cache[i] = delta
            buffer = {}
            np.testing.assert_allclose(algorithm.model.numpy(), model, atol=1e-4)
            assert made
    assert algorithm.version == 80
