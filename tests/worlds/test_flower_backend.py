"""The errors of ``[flower]``; its training is in tests/flower, which needs Flower."""

import importlib.util

import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import Epochs

from offbeat.algorithms import SCAFFOLD, FedBuff, FedLaAvg, LocalPlan
from offbeat.config.experiment_sections import FlowerSection
from offbeat.worlds.flower_backend import build_flower_backend

PLAN = LocalPlan(1, 1, 0.1)
SECTION = FlowerSection.model_validate({"app": "my_app:app"}, context={"folder": None})


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (SCAFFOLD(), "scaffold corrects each local gradient: that is not possible with Flower's apps"),
        (FedLaAvg(), 'fedlaavg weighs all clients by their examples, .* set weighting = "uniform"'),
    ],
)
def test_an_algorithm_that_needs_more_is_refused(algorithm, message):
    with pytest.raises(OffbeatError, match=message):
        build_flower_backend(SECTION, None, algorithm, PLAN, 3)


def test_steps_that_depend_on_examples_are_refused():
    with pytest.raises(
        OffbeatError, match=r"^local: only the app knows how many examples a client holds: set local\.st"
    ):
        build_flower_backend(SECTION, None, FedBuff(), LocalPlan(1, 1, 0.1, steps_by=Epochs(2)), 3)


@pytest.mark.skipif(importlib.util.find_spec("flwr") is not None, reason="Flower is installed")
def test_without_flower_the_error_says_how_to_install_it():
    with pytest.raises(OffbeatError, match=r"\[flower\] needs Flower: pip install 'offbeat\[flower\]'"):
        build_flower_backend(SECTION, None, FedBuff(), PLAN, 3)
