import json
import logging
import math

import numpy as np
import pytest
import torch
from offbeat_client.client_run import run_client
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import UnreachableError

from tests.offbeat_client.conftest import Fault

NUMBERS = {"loss": 1.5, "accuracy": np.float32(0.25)}


class Measuring:
    """A client that trains nothing and has the given result of an evaluation."""

    def __init__(self, result=(NUMBERS, 7)):
        self.result = result
        self.models = []

    def fit(self, model, visit):
        return model, 3

    def evaluate(self, model):
        self.models.append({name: array.copy() for name, array in model.items()})
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.fixture
def join(server, quick, tmp_path, model):
    """Return a function that lets a client take part; it is asked to evaluate version 12, then given a visit."""
    server.serve(12, model)
    server.evaluations.append({"version": 12, "length": 6})
    server.offer(0, 12)

    def call(client):
        return run_client(server.url, lambda number: client, tmp_path, enrolment_token="obe_1", backoff=quick)

    return call


def supports(server):
    return [headers["Offbeat-Supports"] for _, path, headers in server.heard if path == "/v1/checkin"]


def test_a_client_measures_the_version_and_then_trains(server, join, model):
    client = Measuring()
    assert join(client) == 1
    assert server.evaluated == [
        (12, {"model_sha256": server.digest(12), "examples": 7, "metrics": {"loss": 1.5, "accuracy": 0.25}})
    ]
    (measured,) = client.models
    assert measured.keys() == model.keys()
    assert all(np.array_equal(measured[name], model[name]) for name in model)
    assert set(supports(server)) == {"needs_loss, evaluate"}


def test_a_function_may_have_it_too(server, join):
    def fit(model, visit):
        return model, 3

    fit.evaluate = lambda model: ({"size": float(sum(array.size for array in model.values()))}, 2)
    assert join(fit) == 1
    assert server.evaluated == [(12, {"model_sha256": server.digest(12), "examples": 2, "metrics": {"size": 6.0}})]


def test_its_numbers_may_be_those_of_numpy_or_torch(server, join):
    metrics = {"a": np.float32(0.5), "b": torch.tensor(2), "c": np.array(0.25)}
    assert join(Measuring((metrics, np.int64(7)))) == 1
    assert server.evaluated[0][1]["metrics"] == {"a": 0.5, "b": 2.0, "c": 0.25}
    assert server.evaluated[0][1]["examples"] == 7


def test_a_client_without_it_does_not_say_that_it_can(server, join):
    server.evaluations.clear()
    assert join(lambda model, visit: (model, 3)) == 1
    assert set(supports(server)) == {"needs_loss"}


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (RuntimeError("no memory"), "the client's evaluate failed: RuntimeError: no memory"),
        (0.5, "must return (metrics, examples), got a float"),
        ((NUMBERS, 7, 8), "must return (metrics, examples), got a tuple"),
        (({"loss": math.nan}, 7), "metrics.loss"),
        (({"loss": 1e39}, 7), "metrics.loss"),
        (({"a b": 1.0}, 7), "metrics.a b"),
        (({}, 7), "metrics"),
        (({"loss": "high"}, 7), "loss must be a number, got 'high'"),
        (({"loss": None}, 7), "wrong value: loss must be a number, got None"),
        (({"loss": True}, 7), "wrong value: loss must be a number, got True"),
        ((NUMBERS, np.float32(7)), "examples must be a whole number of at least 1, got np.float32(7.0)"),
        (({f"m{number}": 1.0 for number in range(33)}, 7), "metrics"),
        ((NUMBERS, 0), "examples must be a whole number of at least 1, got 0"),
        ((NUMBERS, 2.5), "examples must be a whole number of at least 1, got 2.5"),
    ],
)
def test_a_failed_evaluation_is_given_up_and_training_goes_on(server, join, caplog, result, reason):
    with caplog.at_level(logging.WARNING):
        assert join(Measuring(result)) == 1
    assert server.evaluated == []
    assert "/v1/evaluations/12/give-up" in server.paths("POST")
    (warning,) = [record.getMessage() for record in caplog.records if "evaluation of version 12" in record.getMessage()]
    assert reason in warning
    assert "\n" not in warning


def test_a_version_that_is_gone_is_given_up(server, join):
    server.evaluations[0]["version"] = 11
    assert join(Measuring()) == 1
    assert "/v1/evaluations/11/give-up" in server.paths("POST")


@pytest.mark.parametrize(("kind", "gives_up"), [("no-such-evaluation", False), ("too-many-examples", True)])
def test_a_refused_answer(server, join, kind, gives_up):
    server.faults["POST", "/v1/evaluations/12"] = [Fault(404 if not gives_up else 422, kind)]
    assert join(Measuring()) == 1
    assert ("/v1/evaluations/12/give-up" in server.paths("POST")) is gives_up


def test_an_answer_is_repeated_until_it_is_acknowledged(server, join):
    server.faults["POST", "/v1/evaluations/12"] = [Fault(503, "busy"), Fault(before_answer=True)]
    client = Measuring()
    assert join(client) == 1
    assert len(server.evaluated) == 2
    assert len({json.dumps(each) for each in server.evaluated}) == 1
    assert len(client.models) == 1


def test_a_server_that_cannot_be_reached_any_more(server, join):
    server.faults["POST", "/v1/evaluations/12"] = [Fault(before_answer=True)] * 9
    with pytest.raises(UnreachableError):
        join(Measuring())


def test_evaluate_has_to_be_a_function(join):
    client = Measuring()
    client.evaluate = 3
    with pytest.raises(OffbeatError, match=r"^the client's evaluate must be a function, got int$"):
        join(client)
