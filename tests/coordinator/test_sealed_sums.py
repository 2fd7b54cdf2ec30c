from dataclasses import replace

import pytest
import torch
from offbeat_private.limits import SMALLEST_SCALE

from offbeat.algorithms import FedBuff, FedNova, LocalPlan
from offbeat.algorithms.components.weights import polynomial
from offbeat.coordinator.sealed_sums import upload_scale

PLAN = LocalPlan(steps=4, batch_size=1, lr=0.1)


@pytest.mark.parametrize(("age", "scale"), [(0, 1.0), (3, 0.5), (63, SMALLEST_SCALE), (1000, SMALLEST_SCALE)])
def test_a_late_update_is_scaled_down_to_an_eighth_at_most(age, scale):
    algorithm = FedBuff(staleness=polynomial(a=0.5), buffer_size=1)
    algorithm.start(torch.zeros(1), 3)
    algorithm._version = age
    assert upload_scale(algorithm, 0, 0, PLAN) == scale


def test_the_scale_of_fednova_is_one_for_any_number_of_steps():
    algorithm = FedNova(cohort=1)
    algorithm.start(torch.zeros(1), 3)
    for steps in (1, 4, 50):
        assert upload_scale(algorithm, 0, 0, replace(PLAN, steps=steps, momentum=0.9)) == pytest.approx(1.0)


def test_a_weight_above_one_is_refused():
    algorithm = FedBuff(staleness=lambda age: 1.5)
    algorithm.start(torch.zeros(1), 3)
    with pytest.raises(
        ValueError, match=r"fedbuff would count this update 1\.5 times, .*: lower the algorithm's weights"
    ):
        upload_scale(algorithm, 0, 0, PLAN)
