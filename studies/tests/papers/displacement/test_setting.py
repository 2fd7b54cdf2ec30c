import numpy as np
import pytest
import torch

from offbeat.algorithms import LocalPlan
from offbeat.algorithms.components import Update
from offbeat_studies.papers.displacement.setting import Setting
from offbeat_studies.papers.displacement.world import arrivals

LOCAL = LocalPlan(steps=1, batch_size=1, lr=0.1)
CLIENTS = 12


def moves(algorithm, at_work, deltas):
    """Return how far the model has moved after each upload, one Δ of ``deltas`` at a time."""
    order, assigned = arrivals(np.random.default_rng(3), CLIENTS, at_work, len(deltas), 0.1)
    algorithm.start(torch.zeros(1), CLIENTS)
    started = []
    for client in assigned[:at_work]:
        algorithm.assign(int(client), LOCAL)
        started.append((algorithm.version, algorithm.model))
    found = []
    for upload, (number, delta) in enumerate(zip(order, deltas, strict=True)):
        version, start = started[number]
        vector = torch.tensor([float(delta)])
        end = start - vector if algorithm.payload == "params" else vector
        algorithm.receive(Update(int(assigned[number]), version, end, 1, 1, 1.0))
        algorithm.assign(int(assigned[at_work + upload]), LOCAL)
        started.append((algorithm.version, algorithm.model))
        found.append(-algorithm.model.item())
    return np.array(found)


@pytest.mark.parametrize(
    ("kind", "size", "displacement", "attributes"),
    [
        ("fedbuff", 4, 0.1, {"server_lr": 0.4}),  # server_lr / K
        ("fedfa", 4, 0.1, {"server_lr": 0.1}),  # server_lr
        ("fedfa-params", 4, 1 / 6.5, {}),  # 1 / (M + (K − 1) / 2)
        ("fedasync", 1, 0.125, {"mixing_alpha": 0.25}),  # α / (1 + α (M − 1))
        ("fedasync", 1, 0.2, {"mixing_alpha": 1.0}),
    ],
)
def test_under_constant_drift_an_upload_moves_the_model_by_the_displacement(kind, size, displacement, attributes):
    setting = Setting(kind, size, 5, 0.1)
    algorithm = setting.algorithm(displacement)
    for name, value in attributes.items():
        assert getattr(algorithm, name) == pytest.approx(value)
    found = moves(algorithm, 5, np.ones(2000))
    assert (found[-1] - found[999]) / 1000 == pytest.approx(displacement, rel=0.015)


@pytest.mark.parametrize("kind", ["fedbuff", "fedfa"])
@pytest.mark.parametrize("size", [1, 5])
def test_the_delay_is_the_other_uploads_of_a_visit_and_the_wait(kind, size):
    setting = Setting(kind, size, 4, 0.1)
    order, _ = arrivals(np.random.default_rng(3), CLIENTS, 4, 400, 0.1)
    # Assignment 4 + n was made right after upload n, so n − (assignment − 4) − 1 others came between.
    others = np.array([n - (number - 4) - 1 for n, number in enumerate(order) if number >= 4])
    waits = []
    for at in range(200, 220):  # one Δ of 1 among zeros: the mean wait until it moves the model
        moved = np.diff(moves(setting.algorithm(0.1), 4, np.arange(300) == at))
        assert moved.sum() == pytest.approx(0.1)
        waits.append((moved * (np.arange(1, 300) - at)).sum() / moved.sum())
    assert setting.delay == pytest.approx(others.mean() + np.mean(waits), abs=0.05)


def test_fedasync_and_params_cannot_move_farther_than_the_delay_allows():
    assert Setting("fedasync", 1, 5, 0.1).largest == 0.2
    assert Setting("fedfa-params", 5, 5, 0.1).largest == pytest.approx(1 / 7)
    assert not Setting("fedbuff", 5, 5, 0.1).is_bounded
