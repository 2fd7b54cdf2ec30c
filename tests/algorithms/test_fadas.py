import math

import numpy as np
import pytest
import torch

from offbeat.algorithms import FADAS
from offbeat.algorithms.components.buffers.robust import robust
from tests.algorithms.case import Case


def trimmed():
    algorithm = FADAS(buffer_size=3, concurrency=4, delay_bound=1)
    algorithm.wrap(robust("trimmed_mean"))
    return algorithm


CASES = [
    Case("fadas", lambda: FADAS(buffer_size=2, concurrency=3), places=3),
    Case("fadas delayed", lambda: FADAS(buffer_size=1, concurrency=6, delay_bound=1), places=6),
    Case("fadas paper", lambda: FADAS(buffer_size=2, concurrency=4, delay_bound=2, variant="paper"), places=4),
    Case("fadas trimmed mean", trimmed, places=4),
]


def test_two_steps_of_the_paper_by_hand(begin, plan, upload):
    parameters = {"beta1": 0.5, "beta2": 0.75, "epsilon": 1.0, "server_lr": 2.0, "variant": "paper"}
    algorithm = begin(FADAS(buffer_size=2, concurrency=3, **parameters), (10.0,))
    assert algorithm.receive(upload(0, 0, 4)) is False
    assert algorithm.receive(upload(1, 0, 12)) is True
    # Δ = 8, m = 4, v = v̂ = 16: 10 − 2 · 4/(4 + 1)
    assert algorithm.model.tolist() == pytest.approx([8.4])
    for client in (0, 1):
        algorithm.assign(client, plan)
    algorithm.receive(upload(0, 1, 0))
    algorithm.receive(upload(1, 1, 0))
    # Δ = 0, m = 2, v = 12 and v̂ stays 16: 8.4 − 2 · 2/5
    assert algorithm.model.tolist() == pytest.approx([7.6])


@pytest.mark.parametrize(
    ("variant", "server_lr", "bound", "expected"),
    [
        ("code", 0.5, None, 0.5),
        ("code", 0.5, 4, 0.5),  # τ_max = 4 is not beyond 4
        ("code", 0.5, 3, 0.125),
        ("paper", 0.5, 3, 0.25),  # 1/τ_max
        ("paper", 0.1, 3, 0.1),
    ],
)
def test_the_oldest_update_of_the_buffer_sets_the_step(variant, server_lr, bound, expected, begin, plan, upload):
    parameters = {"server_lr": server_lr, "delay_bound": bound, "variant": variant}
    algorithm = begin(FADAS(buffer_size=2, concurrency=3, beta1=0, beta2=0, **parameters))
    for version in range(4):
        for client in (0, 1):
            algorithm.receive(upload(client, version, 0))
        for client in (0, 1):
            algorithm.assign(client, plan)
    algorithm.receive(upload(2, 0, 1))
    assert algorithm.receive(upload(1, 4, 1)) is True
    assert algorithm.model.tolist() == pytest.approx([-expected])


def amsgrad(variant, server_lr, bound, buffers, length):
    """The paper's Algorithm 1 on buffers of (τ, delta), coordinate by coordinate."""
    m, v, largest, model = (np.zeros(length) for _ in range(4))
    for number, buffer in enumerate(buffers, start=1):
        delta, delay = np.mean([vector for _, vector in buffer], axis=0), max(age for age, _ in buffer)
        m = 0.9 * m + 0.1 * delta
        v = 0.99 * v + 0.01 * delta**2
        largest = np.maximum(largest, v)
        lr = server_lr
        if delay > bound:
            lr = server_lr / delay if variant == "code" else min(server_lr, 1 / delay)
        if variant == "code":
            model = model - lr * (m / (1 - 0.9**number)) / (np.sqrt(largest) / math.sqrt(1 - 0.99**number) + 1e-8)
        else:
            model = model - lr * m / (np.sqrt(largest) + 1e-8)
    return model


@pytest.mark.parametrize("variant", ["code", "paper"])
def test_a_random_script_of_arrivals_agrees_with_numpy(variant, plan, upload):
    numbers = np.random.default_rng(5)
    algorithm = FADAS(buffer_size=3, server_lr=0.4, delay_bound=2, variant=variant, concurrency=5)
    algorithm.start(torch.zeros(4), clients=8)
    at_work, buffers = {}, [[]]
    for _ in range(240):
        while algorithm.slots() > 0:
            client = int(numbers.choice([client for client in range(8) if client not in at_work]))
            algorithm.assign(client, plan)
            at_work[client] = algorithm.version
        shares = np.array([1.0 if client % 3 else 0.1 for client in at_work])  # every third client is slow
        client = int(numbers.choice(list(at_work), p=shares / shares.sum()))
        delta, version = numbers.standard_normal(4), at_work.pop(client)
        buffers[-1].append((algorithm.version - version, delta))
        if algorithm.receive(upload(client, version, *delta)):
            buffers.append([])
    ages = [max(age for age, _ in buffer) for buffer in buffers[:-1]]
    assert min(ages) <= 2 < max(ages)
    expected = amsgrad(variant, 0.4, 2, buffers[:-1], 4)
    np.testing.assert_allclose(algorithm.model.numpy(), expected, rtol=1e-3, atol=1e-3)
