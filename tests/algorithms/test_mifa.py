import numpy as np
import torch

from offbeat.algorithms import MIFA, Update
from offbeat.algorithms.components.server_optimizer import adam
from tests.algorithms.case import Case

CASES = [
    Case("mifa", lambda: MIFA(server_lr=0.9), places=6, takes_all_comers=True, also_broken=({"since": 10**6},)),
    Case(
        "mifa keeping",
        lambda: MIFA(server_keeps_updates=True, server_optimizer=adam()),
        places=6,
        takes_all_comers=True,
        also_broken=({"since": -1},),
    ),
]


def difference(client, version, since, *values):
    vector = torch.tensor(values, dtype=torch.float32)
    return Update(client, version, vector, examples=1, steps=1, normaliser=1.0, since=since)


def test_two_rounds_by_hand(plan):
    algorithm = MIFA(weighting="uniform")
    algorithm.start(torch.tensor([10.0]), clients=4)
    for client in (0, 1):
        algorithm.assign(client, plan)
    assert algorithm.slots() == 2  # whoever comes is taken in …
    assert algorithm.receive(difference(0, 0, None, 4)) is False
    assert algorithm.slots() == 0  # … until the first is back
    assert algorithm.receive(difference(1, 0, None, 8)) is True
    assert algorithm.model.tolist() == [7]  # 10 − (4 + 8)/4, the two that were never heard count 0
    algorithm.assign(1, plan)
    assert algorithm.receive(difference(1, 1, 0, -4)) is True  # its latest is 4 now
    assert algorithm.model.tolist() == [5]  # 7 − (4 + 4)/4: client 0 counts with its old update


def test_random_availability_agrees_with_numpy(plan):
    numbers = np.random.default_rng(3)
    algorithm = MIFA(server_lr=0.3, weighting="uniform")
    algorithm.start(torch.zeros(4), clients=6)
    latest, since, model = np.zeros((6, 4)), [None] * 6, np.zeros(4)
    for _ in range(40):
        available = np.flatnonzero(numbers.random(6) < 0.5)
        if len(available) == 0:
            continue
        version = algorithm.version
        for client in available:
            algorithm.assign(int(client), plan)
        for client in numbers.permutation(available):
            new = numbers.standard_normal(4)
            algorithm.receive(difference(int(client), version, since[client], *(new - latest[client])))
            latest[client], since[client] = new, version
        model = model - 0.3 * latest.mean(axis=0)
        np.testing.assert_allclose(algorithm.model.numpy(), model, atol=1e-5)
    assert algorithm.version > 30
