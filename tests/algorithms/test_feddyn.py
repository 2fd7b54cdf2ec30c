import dataclasses

import numpy as np
import pytest
import torch

from offbeat.algorithms import FedDyn, LocalPlan, Update
from tests.algorithms.case import Case

CASES = [
    Case(
        "feddyn",
        lambda: FedDyn(cohort=3, alpha=0.5, over_selection=1.3),
        places=4,
        own_plan=True,
        plain_gradients=True,
        also_broken=({"since": 10**6},),
    ),
]

PLAN = LocalPlan(steps=2, batch_size=1, lr=0.25)


def update(client, version, since, *values):
    vector = torch.tensor(values, dtype=torch.float32)
    return Update(client, version, vector, 1, 2, 2.0, since=since, plan=PLAN)


def test_two_rounds_by_hand():
    algorithm = FedDyn(cohort=2, alpha=0.5)
    algorithm.start(torch.tensor([0.0]), clients=4)
    for client in (0, 1):
        assert algorithm.assign(client, PLAN) == dataclasses.replace(PLAN, mu=0.5)
    assert algorithm.receive(update(0, 0, None, 1)) is False
    assert algorithm.receive(update(1, 0, None, 3)) is True
    assert algorithm.model.tolist() == [-3]  # q = 4/4: 0 − 4/2 − 1
    for client in (1, 2):
        algorithm.assign(client, PLAN)
    algorithm.receive(update(1, 1, 0, 2))
    algorithm.receive(update(2, 1, None, -6))
    assert algorithm.model.tolist() == [-1]  # q = 1 + (2 − 6)/4 = 0: −3 + 4/2 − 0


def test_the_vector_beside_the_model_is_zero(begin):
    algorithm = begin(FedDyn(cohort=1), clients=1)
    algorithm.receive(update(0, 0, None, 1))
    assert algorithm.down().tolist() == [0]


def test_regularisers_average_to_q_and_the_optimum_is_reached():
    """Quadratic losses with different minima and curvatures, by the paper's formulas; a random half takes part."""
    numbers = np.random.default_rng(6)
    curvatures, minima = np.array([1.0, 4.0, 0.5, 2.0]), np.array([0.0, 1.0, 5.0, -2.0])
    optimum = (curvatures * minima).sum() / curvatures.sum()
    alpha, plan = 0.8, LocalPlan(steps=30, batch_size=1, lr=0.1)
    algorithm = FedDyn(cohort=2, alpha=alpha)
    algorithm.start(torch.tensor([3.0]), clients=4)
    h, since, model = np.zeros(4), [None] * 4, 3.0
    for number in range(200):
        cohort, deltas = numbers.permutation(4)[:2], []
        for client in cohort:
            algorithm.assign(int(client), plan)
        for client in cohort:
            point = model
            for _ in range(30):
                point -= 0.1 * (curvatures[client] * (point - minima[client]) - h[client] + alpha * (point - model))
            deltas.append(model - point)
            h[client] += alpha * deltas[-1]
            algorithm.receive(update(int(client), number, since[client], deltas[-1]))
            since[client] = number
        model = model - np.mean(deltas) - h.mean() / alpha
        assert algorithm.model.item() == pytest.approx(model, abs=1e-4)
        assert alpha * algorithm.drift.item() == pytest.approx(h.mean(), abs=1e-4)
    assert algorithm.model.item() == pytest.approx(optimum, abs=1e-3)


def test_a_client_that_has_lost_its_regulariser_is_refused(begin):
    algorithm = begin(FedDyn(cohort=1), clients=1)
    with pytest.raises(ValueError, match="client 0 has lost its regulariser: let it enrol anew"):
        algorithm.receive(update(0, 0, 7, 1))


def test_too_large_a_step_is_refused_before_the_run():
    with pytest.raises(ValueError, match="must be less than 2, or the proximal term diverges"):
        FedDyn(alpha=8.0).check_local(PLAN)
