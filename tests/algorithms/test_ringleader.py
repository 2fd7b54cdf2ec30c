import numpy as np
import pytest
import torch

from offbeat.algorithms import RingleaderASGD
from tests.algorithms.case import Case

CASES = [
    Case("ringleader", lambda: RingleaderASGD(server_lr=0.2, concurrency=6), places=6),
]


def test_two_rounds_by_hand(begin, plan, upload):
    algorithm = begin(RingleaderASGD(server_lr=0.5), (10.0,), clients=2)

    def arrive(client, version, value):
        made = algorithm.receive(upload(client, version, value))
        algorithm.assign(client, plan)
        return made, algorithm.model.item()

    assert arrive(0, 0, 4) == (False, 10)  # nothing yet of client 1
    assert arrive(0, 0, 8) == (False, 10)
    assert arrive(1, 0, 2) == (True, 8)  # ½ · ((4 + 8)/2 + 2)/2
    assert arrive(1, 1, 20) == (False, 8)  # it had its step: this counts in the next round
    assert arrive(0, 0, 6) == (True, 6)  # ½ · ((4 + 8 + 6)/3 + 2)/2; the round ends
    assert arrive(1, 1, 10) == (False, 6)
    assert arrive(0, 2, 1) == (True, 2)  # ½ · (1 + (20 + 10)/2)/2
    assert arrive(0, 3, 3) == (False, 2)
    assert arrive(1, 2, 0) == (True, -0.75)  # ½ · (1 + (20 + 10 + 0)/3)/2


def test_shares_are_those_of_the_objective(plan, upload):
    algorithm = RingleaderASGD()
    algorithm.start(torch.tensor([0.0]), clients=2, data_weights=torch.tensor([3.0, 1.0]))
    for client in (0, 1):
        algorithm.assign(client, plan)
    algorithm.receive(upload(0, 0, 8))
    algorithm.receive(upload(1, 0, 4))
    assert algorithm.model.tolist() == [-7]


def test_a_lost_visit_makes_no_step_and_its_client_is_awaited(begin, plan, upload):
    algorithm = begin(RingleaderASGD(), (0.0,), clients=2)
    algorithm.receive(upload(0, 0, 1))
    assert algorithm.drop(1, 0) is False
    algorithm.assign(0, plan)
    assert algorithm.receive(upload(0, 0, 1)) is False
    algorithm.assign(1, plan)
    assert algorithm.receive(upload(1, 0, 1)) is True


@pytest.mark.parametrize("seconds", [(1, 1.3, 1.7, 4, 9, 30), (1, 1.01, 1.02, 1.03, 1.04, 1.05)])
def test_workers_of_different_speeds_agree_with_numpy(seconds, plan, upload):
    """The paper's two phases: all gradients of a round are kept in lists, and averaged anew at each step."""
    numbers = np.random.default_rng(7)
    algorithm = RingleaderASGD(server_lr=0.1, weighting="uniform")
    algorithm.start(torch.zeros(3), clients=6)
    seconds, model, step, delay = np.array(seconds, float), np.zeros(3), 0, 0
    for client in range(6):
        algorithm.assign(client, plan)
    ends, starts = seconds.copy(), [(0, model)] * 6

    def next_gradient():
        client = int(ends.argmin())
        version, point = starts[client]
        gradient = (1 + client) * point - numbers.standard_normal(3) - client
        return client, version, gradient, algorithm.receive(upload(client, version, *gradient))

    def go_on(client):
        algorithm.assign(client, plan)
        ends[client], starts[client] = ends[client] + seconds[client], (step, model)

    table = [[] for _ in range(6)]
    for _ in range(12):
        while True:  # phase 1
            client, version, gradient, made = next_gradient()
            table[client].append((version, gradient))
            if all(table):
                break
            assert made is False
            go_on(client)
        left, table_of_next = set(range(6)), [[] for _ in range(6)]
        while True:  # phase 2, which begins with the last finisher of phase 1
            if client in left:
                assert made is True
                delay = max(delay, step - min(version for row in table for version, _ in row))
                model = model - 0.1 * np.mean([np.mean([g for _, g in row], axis=0) for row in table], axis=0)
                step += 1
                left.remove(client)
            else:
                assert made is False
                table_of_next[client].append((version, gradient))
            np.testing.assert_allclose(algorithm.model.numpy(), model, rtol=1e-4, atol=1e-4)
            go_on(client)
            if not left:
                break
            client, version, gradient, made = next_gradient()
            if client in left:
                table[client].append((version, gradient))
        table = table_of_next
    assert algorithm.version == step == 12 * 6
    assert 0 < delay <= 2 * 6 - 2  # the paper's bound
