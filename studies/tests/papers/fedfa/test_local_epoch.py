from pathlib import Path

import pytest
import torch

from offbeat.algorithms import LocalPlan
from offbeat.config.import_path import canonical, load_object

FILE = Path(__file__).parents[3] / "offbeat_studies" / "papers" / "fedfa" / "local_epoch.py"


@pytest.mark.parametrize("name", ["EpochFedAvg", "EpochFedNova", "EpochFedFa"])
def test_a_visit_is_as_long_as_the_clients_data(name):
    algorithm = load_object(canonical(f"{FILE}:{name}", Path()))()
    algorithm.start(torch.zeros(2), 12, torch.tensor([1.0, 200.0, 99.0, *[100.0] * 9]))  # 100 on average
    plan = LocalPlan(steps=20, batch_size=10, lr=0.1)
    assert [algorithm.assign(client, plan).steps for client in range(2)] == [1, 40]
    # So it goes on from a checkpoint.
    algorithm.load_state_dict(algorithm.state_dict())
    assert algorithm.assign(2, plan).steps == 20
