import threading

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord
from offbeat_client.visit import Visit
from offbeat_core.errors import GiveUpError, OffbeatError
from offbeat_core.local_plan import LocalPlan

from offbeat.flower.app import FlowerApp
from offbeat.flower.client import FlowerClient
from tests.flower.apps import app_of, minus_lr, reply

PLAN = LocalPlan(steps=2, batch_size=4, lr=0.25)


def visit(number=0, **values):
    return Visit(1, number, 5, None, "delta", 2, 0, PLAN, urgent=threading.Event(), **values)


def client(train, **config):
    return FlowerClient(FlowerApp(app_of(train), run_config={}, node_config=config))


def test_a_visit_is_trained_by_the_app():
    mine = client(minus_lr)
    first = mine.fit({"w": torch.ones(2)}, visit())
    assert first.model["w"].tolist() == [0.75, 0.75]
    assert (first.examples, first.loss, first.steps) == (7, 0.5, None)
    assert mine.fit({"w": torch.ones(2)}, visit(1, state=first.state)).state != first.state


def test_an_app_that_has_trained_gives_up_a_visit():
    fails = [False, True, False]

    def train(message, context):
        if fails.pop(0):
            raise ZeroDivisionError("mine")
        return reply(message, ArrayRecord({"w": message.content["arrays"]["w"]}))

    mine = client(train)
    mine.fit({"w": torch.ones(2)}, visit())
    with pytest.raises(GiveUpError, match=r"^visit 1: the Flower app failed: ZeroDivisionError: mine \(.*test_client"):
        mine.fit({"w": torch.ones(2)}, visit(1))
    assert np.asarray(mine.fit({"w": torch.ones(2)}, visit(2)).model["w"]).tolist() == [1, 1]


def test_an_app_that_never_trained_is_a_mistake():
    mine = client(lambda message, context: context.node_config["num-partitions"])
    with pytest.raises(OffbeatError, match=r"KeyError: 'num-partitions' .*: if that is a setting, give it") as caught:
        mine.fit({"w": torch.ones(2)}, visit())
    assert not isinstance(caught.value, GiveUpError)
