import threading

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from offbeat_client.visit import Visit
from offbeat_core.errors import GiveUpError, OffbeatError
from offbeat_core.local_plan import LocalPlan

from offbeat.flower.client_app import AppState, FlowerApp, FlowerClient
from offbeat.flower.model_arrays import ModelArrays
from offbeat.flower.records import ReplyError
from tests.flower.apps import EXAMPLES, Subtract, app_of, minus_lr, net, reply


def test_a_state_comes_back():
    records = RecordDict(
        {
            "own": ConfigRecord({"name": "as the app likes"}),
            "arrays": ArrayRecord([np.arange(3)]),
            "metrics": MetricRecord({"seen": [1, 2]}),
        }
    )
    own = {"running_mean": np.array([1.5, 2.5], np.float32), "num_batches_tracked": np.array(3)}
    again = AppState.from_bytes(AppState(records, own).to_bytes())
    assert again.records == records
    assert {name: (array.dtype, array.tolist()) for name, array in again.own.items()} == {
        "running_mean": (np.float32, [1.5, 2.5]),
        "num_batches_tracked": (np.int64, 3),
    }


def test_an_empty_state_comes_back():
    again = AppState.from_bytes(AppState().to_bytes())
    assert (dict(again.records), again.own) == ({}, {})


PLAN = LocalPlan(steps=2, batch_size=4, lr=0.25)
MODEL = {"weight": np.ones((2, 2), np.float32), "bias": np.ones(2, np.float32)}


def flower_app(app, model=None, **node):
    return FlowerApp(app, run_config={"local-epochs": 2}, node_config=node, model=model)


def test_an_app_trains_with_its_state():
    app = flower_app(app_of(minus_lr))
    first = app.train(3, MODEL, PLAN, 0, None)
    assert {name: array.ravel()[0] for name, array in first.model.items()} == {"weight": 0.75, "bias": 0.75}
    assert (first.examples, first.loss) == (EXAMPLES, 0.5)
    second = app.train(3, MODEL, PLAN, 1, first.state)
    assert AppState.from_bytes(second.state).records["count"]["trainings"] == 2
    assert MODEL["weight"].tolist() == [[1, 1], [1, 1]]


def test_an_app_sees_its_node_and_settings():
    seen = []

    def train(message, context):
        seen.append((context.node_id, dict(context.node_config), dict(context.run_config), message.metadata))
        return reply(message, message.content["arrays"])

    flower_app(app_of(train), **{"num-partitions": 5}).train(3, MODEL, PLAN, 7, None)
    flower_app(app_of(train), **{"partition-id": 1}).train(3, MODEL, PLAN, 7, None)
    node, config, settings, metadata = seen[0]
    assert (node, config, settings) == (3, {"partition-id": 3, "num-partitions": 5}, {"local-epochs": 2})
    assert (metadata.message_type, metadata.dst_node_id, metadata.group_id) == ("train", 3, "7")
    assert seen[1][1] == {"partition-id": 1}


def test_a_numpy_client_trains():
    result = flower_app(ClientApp(lambda context: Subtract().to_client())).train(0, MODEL, PLAN, 0, None)
    assert {name: array.ravel()[0] for name, array in result.model.items()} == {"weight": 0.75, "bias": 0.75}
    assert (result.examples, result.loss) == (EXAMPLES, 0.25)


@pytest.mark.parametrize("app", [app_of(minus_lr), ClientApp(lambda context: Subtract().to_client())])
def test_statistics_stay_with_the_client(app):
    arrays = ModelArrays(net())
    parameters = arrays.named(arrays.vector)
    flower = flower_app(app, arrays)
    first = flower.train(0, parameters, PLAN, 0, None)
    assert first.model.keys() == parameters.keys()
    second = flower.train(0, parameters, PLAN, 1, first.state)
    own = AppState.from_bytes(second.state).own
    assert own["1.running_var"].tolist() == [0.5, 0.5]  # 1 − lr − lr, where the parameters begin anew
    assert second.model["1.weight"].tolist() == [0.75, 0.75]
    assert "2.weight" not in own


def test_without_its_model_an_app_gets_the_parameters_only():
    def train(message, context):
        assert list(message.content["arrays"]) == ["weight", "bias"]
        return reply(message, ArrayRecord({**message.content["arrays"], "mean": message.content["arrays"]["bias"]}))

    app = flower_app(app_of(train))
    first = app.train(0, MODEL, PLAN, 0, None)
    app.train(0, MODEL, PLAN, 1, first.state)
    assert AppState.from_bytes(first.state).own == {}


def test_a_reply_that_is_no_result_is_refused():
    for train, message in (
        (lambda message, context: Message(Error(6, "no"), reply_to=message), "error 6: no"),
        (lambda message, context: None, "must return a Message, it returned a NoneType"),
    ):
        with pytest.raises(ReplyError, match=message):
            flower_app(app_of(train)).train(0, MODEL, PLAN, 0, None)
    with pytest.raises(OffbeatError, match=r"must be a flwr.clientapp.ClientApp, but is a int"):
        flower_app(3)


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
