"""An app as the trainer of a simulation."""

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import LocalPlan
from torch import nn

from offbeat.flower.backend import FlowerBackend
from offbeat.flower.client_app import FlowerApp
from offbeat.training.flat_model import FlatModel
from offbeat.training.objectives import Objective
from offbeat.training.trainers.backend import Job
from offbeat.training.workload import Examples, Workload
from tests.flower.apps import EXAMPLES, app_of, minus_lr, reply

PLAN = LocalPlan(steps=2, batch_size=4, lr=0.25)


def trainer(train, **options):
    data = Examples(torch.zeros(2, 2), torch.zeros(2))
    workload = Workload(FlatModel(nn.Linear(2, 1)), Objective(nn.functional.mse_loss), data, [np.arange(2)], seed=3)
    return FlowerBackend(workload, FlowerApp(app_of(train), run_config={}, node_config={}), **options)


def job(client=0, visit=0, **values):
    return Job(client, visit, 5, torch.ones(3), PLAN, "delta", **values)


def test_an_app_trains_in_order_with_the_states():
    mine = trainer(minus_lr)
    first, second = mine.train([job(0), job(1)])
    assert first.vector.tolist() == second.vector.tolist() == [0.25, 0.25, 0.25]
    assert (first.loss, first.examples) == (0.5, EXAMPLES)
    (third,) = mine.train([job(0, 1, state=first.state)])
    assert third.state not in (None, first.state)
    (model,) = mine.train([job()._replace(payload="params")])
    assert model.vector.tolist() == [0.75, 0.75, 0.75]


def random_step(message, context):
    state = message.content["arrays"].to_torch_state_dict()
    return reply(message, ArrayRecord({name: array + torch.randn(array.shape) for name, array in state.items()}))


def test_torchs_random_numbers_depend_on_the_visit_only():
    torch.manual_seed(1)
    expected = torch.randn(2).tolist()
    mine = trainer(random_step)
    torch.manual_seed(1)
    (first,), (other,) = mine.train([job(0, 0)]), mine.train([job(0, 1)])
    assert torch.randn(2).tolist() == expected
    (again,) = mine.train([job(0, 0)])
    assert first.vector.tolist() == again.vector.tolist()
    assert first.vector.tolist() != other.vector.tolist()


def test_an_app_that_fails_is_one_line():
    with pytest.raises(OffbeatError, match=r"client 0, visit 0: the Flower app failed: ZeroDivisionError"):
        trainer(lambda message, context: 1 / 0).train([job()])
    with pytest.raises(OffbeatError, match="return train_loss in a MetricRecord"):
        trainer(random_step, needs_loss=True).train([job()])
