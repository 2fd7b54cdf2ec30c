import pytest
from torch import nn

import offbeat
from offbeat.algorithms import FedBuff


def net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


@pytest.fixture
def simulate():
    """``offbeat.simulate``, in a small world."""

    def small(model=net, data="digits", algorithm="fedbuff", **changes):
        arguments = {
            "population": 12,
            "local": {"steps": 2, "batch_size": 8, "lr": 0.1},
            "evaluate_every_seconds": 10.0,
            "virtual_seconds": 20.0,
            "progress": False,
        }
        if algorithm == "fedbuff":
            algorithm = FedBuff(buffer_size=2, concurrency=4)
        return offbeat.simulate(model, data, algorithm, **{**arguments, **changes})

    return small
