import numpy as np
import pytest
import torch

from offbeat.algorithms import SCAFFOLD, LocalPlan, Update
from offbeat.algorithms.components.server_optimizer import adam
from tests.algorithms.case import Case

CASES = [
    Case(
        "scaffold",
        lambda: SCAFFOLD(cohort=3, server_lr=0.9, over_selection=1.3),
        places=4,
        plain_gradients=True,
        also_broken=({"since": 10**6}, {"plan": None}, {"steps": 0}),
    ),
    Case("scaffold adam", lambda: SCAFFOLD(cohort=6, server_optimizer=adam()), places=6, plain_gradients=True),
]

PLAN = LocalPlan(steps=2, batch_size=1, lr=0.25)  # P = ½


def update(client, version, since, *values, plan=PLAN, steps=2):
    vector = torch.tensor(values, dtype=torch.float32)
    return Update(client, version, vector, 1, steps, float(steps), since=since, plan=plan)


def test_two_rounds_by_hand():
    algorithm = SCAFFOLD(cohort=2)
    algorithm.start(torch.tensor([0.0]), clients=4)
    assert algorithm.down().tolist() == [0]
    for client in (0, 1):
        algorithm.assign(client, PLAN)
    assert algorithm.receive(update(0, 0, None, 1)) is False
    assert algorithm.receive(update(1, 0, None, 3)) is True
    assert algorithm.model.tolist() == [-2]
    assert algorithm.down().tolist() == [2]  # ¼ ((1/½ − 0) + (3/½ − 0))
    for client in (1, 2):
        algorithm.assign(client, PLAN)
    algorithm.receive(update(1, 1, 0, 2))
    algorithm.receive(update(2, 1, None, 2))
    assert algorithm.model.tolist() == [-4]
    assert algorithm.down().tolist() == [3]  # 2 + ¼ ((2/½ − 2) + (2/½ − 2))


def test_c_is_read_as_of_the_newest_model(begin):
    algorithm = begin(SCAFFOLD(cohort=1), clients=1)
    algorithm.receive(update(0, 0, None, 1))
    assert algorithm.down().tolist() == [2]  # without a look at the model before


def test_control_variates_average_to_c_and_the_optimum_is_reached():
    """Quadratic losses with different minima and curvatures, where FedAvg's fixed point is wrong."""
    curvatures, minima = np.array([1.0, 4.0, 0.5]), np.array([0.0, 1.0, 5.0])
    optimum = (curvatures * minima).sum() / curvatures.sum()
    plan = LocalPlan(steps=10, batch_size=1, lr=0.05)
    algorithm = SCAFFOLD(cohort=3)
    algorithm.start(torch.tensor([0.0]), clients=3)
    own, since = np.zeros(3), None
    for number in range(150):
        start, control = algorithm.model.item(), algorithm.down().item()
        for client in range(3):
            algorithm.assign(client, plan)
        for client in range(3):
            point = start
            for _ in range(10):
                point -= 0.05 * (curvatures[client] * (point - minima[client]) + control - own[client])
            own[client] = (start - point) / 0.5 - (control - own[client])
            algorithm.receive(update(client, number, since, start - point, plan=plan, steps=10))
        since = number
        assert algorithm.down().item() == pytest.approx(own.mean(), abs=1e-4)
    assert algorithm.model.item() == pytest.approx(optimum, abs=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"since": 7}, "client 0 has lost its control variate"),
        ({"steps": 1}, "client 0 took 1 steps, but SCAFFOLD needs all steps of its plan"),
        ({"plan": None}, "needs all steps of its plan"),
    ],
)
def test_updates_that_would_spoil_c_are_refused(change, message, begin):
    algorithm = begin(SCAFFOLD(cohort=1), clients=1)
    with pytest.raises(ValueError, match=message):
        algorithm.receive(update(0, 0, None, 1)._replace(**change))
