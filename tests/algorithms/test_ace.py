import numpy as np
import torch

from offbeat.algorithms import ACE, Update
from tests.algorithms.case import Case

CASES = [
    Case("ace", lambda: ACE(server_lr=0.9, concurrency=3), places=3, also_broken=({"since": 10**6},)),
    Case(
        "ace keeping",
        lambda: ACE(server_lr=0.9, concurrency=6, server_keeps_updates=True),
        places=6,
        also_broken=({"since": -1},),
    ),
]


def difference(client, version, since, *values):
    vector = torch.tensor(values, dtype=torch.float32)
    return Update(client, version, vector, examples=1, steps=1, normaliser=1.0, since=since)


def test_three_arrivals_by_hand(plan):
    algorithm = ACE(server_lr=0.5, weighting="uniform", concurrency=2)
    algorithm.start(torch.tensor([10.0]), clients=4)
    for client in (0, 1):
        algorithm.assign(client, plan)
    assert algorithm.receive(difference(0, 0, None, 8)) is True
    assert algorithm.model.tolist() == [9]  # u = 8/4; the three that were never heard count 0
    algorithm.assign(0, plan)
    assert algorithm.receive(difference(0, 1, 0, -4)) is True
    assert algorithm.model.tolist() == [8.5]  # u = 4/4: the new update of client 0 replaces its old one
    assert algorithm.receive(difference(1, 0, None, 12)) is True  # two versions old, and counts in full
    assert algorithm.model.tolist() == [6.5]  # u = (4 + 12)/4: client 0 counts again


def test_shares_are_those_of_the_objective(plan):
    algorithm = ACE(concurrency=2)
    algorithm.start(torch.tensor([0.0]), clients=2, data_weights=torch.tensor([3.0, 1.0]))
    algorithm.assign(0, plan)
    algorithm.receive(difference(0, 0, None, 8))
    assert algorithm.model.tolist() == [-6]


def test_a_random_script_of_arrivals_agrees_with_numpy(plan):
    """The paper's algorithm over a table of all clients' latest updates, which it averages anew at each arrival."""
    numbers = np.random.default_rng(3)
    algorithm = ACE(server_lr=0.3, weighting="uniform", concurrency=4)
    algorithm.start(torch.zeros(4), clients=6)
    table, since, model, at_work = np.zeros((6, 4)), [None] * 6, np.zeros(4), {}
    for _ in range(200):
        while algorithm.slots() > 0:
            client = int(numbers.choice([client for client in range(6) if client not in at_work]))
            algorithm.assign(client, plan)
            at_work[client] = algorithm.version
        client = int(numbers.choice(list(at_work)))
        new = model - numbers.standard_normal(4)  # drawn to a random point, so that updates depend on the model
        version = at_work.pop(client)
        assert algorithm.receive(difference(client, version, since[client], *(new - table[client]))) is True
        table[client], since[client] = new, version
        model = model - 0.3 * table.mean(axis=0)
        np.testing.assert_allclose(algorithm.model.numpy(), model, atol=1e-4)
    assert algorithm.version == 200
