import hashlib
import json
import logging
import math
import time

import numpy as np
import pytest
import torch
from offbeat_client import local_update
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.client_run import run_client
from offbeat_client.local_update import put_update
from offbeat_client.training import gradient_offset, probe, train
from offbeat_client.visit import Fitted
from offbeat_core.errors import OffbeatError
from offbeat_core.http.service_errors import UnreachableError
from offbeat_core.local_plan import LocalPlan
from safetensors.numpy import load_file

from offbeat.algorithms import FedLuck
from tests.offbeat_client.conftest import Fault
from tests.service.conftest import running

PLAN = LocalPlan(steps=3, batch_size=2, lr=0.25)


@pytest.fixture
def outbox(tmp_path):
    (tmp_path / "box").mkdir()
    return Outbox(tmp_path / "box")


def remember(outbox, visit, value):
    """Let an update of version 9 count, whose memory is ``value`` everywhere."""
    memory = np.full(6, value, np.float32)
    pending = outbox.put(visit(number=3, version=9), lambda path: path.write_bytes(b"body"), memory, lambda path: {})
    outbox.acknowledge(pending, True, 1.5)


def minus(model, change):
    return {name: array - np.float32(change) for name, array in model.items()}


def body(outbox, pending):
    return load_file(outbox.body(pending.visit))["update"].tolist()


def test_training_gets_a_model_of_its_own_and_is_timed(visit, model_file, model, outbox, monkeypatch):
    times = iter([10.0, 12.5])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))

    def fit(given, visit):
        given["bias"] += 1
        return given

    result, seconds = train(visit(), model_file, fit, outbox)
    assert seconds == 2.5
    assert result["bias"].tolist() == (model["bias"] + 1).tolist()
    monkeypatch.undo()
    assert train(visit(), model_file, lambda given, _: given["bias"].tolist(), outbox)[0] == model["bias"].tolist()


def test_the_offset_is_the_vector_beside_the_model_minus_the_memory(visit, model_file, outbox):
    corrected = visit(corrects_gradients=True, since=9)
    assert gradient_offset(visit(since=9), model_file, outbox) is None
    assert gradient_offset(corrected, model_file, outbox).tolist() == [2.0] * 6
    remember(outbox, visit, 0.5)
    assert gradient_offset(corrected, model_file, outbox).tolist() == [1.5] * 6
    heard = []
    train(corrected, model_file, lambda _, here: heard.append(here.offset), outbox)
    found = {name: array.tolist() for name, array in heard[0].items()}
    assert found == {"weight": [[1.5, 1.5], [1.5, 1.5]], "bias": [1.5, 1.5]}


@pytest.mark.parametrize("is_installed", [True, False])
def test_the_digest_is_that_which_the_server_prefers_if_the_client_has_it(
    is_installed, visit, model_file, model, outbox, monkeypatch
):
    blake3 = pytest.importorskip("blake3").blake3
    monkeypatch.setattr(local_update, "has_blake3", lambda: is_installed)
    pending = put_update(visit(PLAN, digest="blake3"), model_file, Fitted(model, 1), 3.0, outbox)
    body = outbox.body(pending.visit).read_bytes()
    expected = {"blake3": blake3(body).hexdigest()} if is_installed else {"sha256": hashlib.sha256(body).hexdigest()}
    assert pending.announcement is not None
    found = {name: pending.announcement[name] for name in ("sha256", "blake3") if name in pending.announcement}
    assert found == expected


def test_the_announcement(visit, model_file, model, outbox):
    remember(outbox, visit, 0.0)
    fitted = Fitted(minus(model, 2), 17, steps=2, normaliser=1.25, loss=0.5)
    pending = put_update(visit(PLAN, since=9, model_sha256="c8" * 32), model_file, fitted, 3.0, outbox)
    path = outbox.body(4)
    assert pending.announcement == {
        "version": 12,
        "model_sha256": "c8" * 32,
        "bytes": path.stat().st_size,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "examples": 17,
        "steps": 2,
        "normaliser": 1.25,
        "since": 9,
        "step_seconds": 1.5,
        "upload_seconds": 1.5,
    }
    assert body(outbox, pending) == [2.0] * 6
    assert not pending.has_memory
    needed = put_update(visit(PLAN, needs_loss=True), model_file, fitted, 3.0, outbox)
    assert needed.announcement["loss"] == 0.5


@pytest.mark.parametrize("has_memory", [True, False])
def test_a_difference_and_a_corrected_update_without_memory_have_no_since(visit, model_file, model, outbox, has_memory):
    if has_memory:
        remember(outbox, visit, 0.5)
    difference = put_update(visit(payload="difference", since=9), model_file, (minus(model, 2), 1), 1.0, outbox)
    assert body(outbox, difference) == [1.5 if has_memory else 2.0] * 6
    corrected = visit(PLAN, corrects_gradients=True, since=9)
    pending = put_update(corrected, model_file, Fitted(minus(model, 3), 1, steps=2), 1.0, outbox)
    assert body(outbox, pending) == [3.0] * 6
    for made in (difference, pending):
        assert made.announcement["since"] == (9 if has_memory else None)
    outbox.acknowledge(pending, True, None)
    assert outbox.memory(12, 6).tolist() == [3.0 / 0.5 - (1.5 if has_memory else 2.0)] * 6


PROBED = LocalPlan(steps=4, batch_size=3, lr=0.5)


@pytest.fixture
def wanted(server, model):
    """Have the server ask for a probe of version 12."""
    server.serve(12, model)
    server.offer(0, 12, LocalPlan(steps=1, batch_size=2, lr=0.1))
    server.probe = {"probe": server.visits.pop(), "upload_bytes": 12}


def fit(model, visit):
    return model, 7


def test_a_step_and_an_upload_are_timed(server, wanted, connection, tmp_path, monkeypatch):
    now, visits = [100.0], []
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    send = connection.send

    def slow_send(method, path, **more):
        answer = send(method, path, **more)
        if method == "PUT":
            now[0] += 0.3 + 0.02 * server.probed[-1]
        return answer

    def fit(model, visit):
        visits.append(visit)
        now[0] += 3.0 if len(visits) == 1 else 0.5  # the first step has more to do
        return model, 7

    monkeypatch.setattr(connection, "send", slow_send)
    probe(connection, tmp_path, 2, fit, Outbox(tmp_path))
    assert [(visit.plan.steps, visit.version, visit.number) for visit in visits] == [(1, 12, 0)] * 2
    assert server.probed == [0, 12]  # bytes
    # A round trip, and the 24 bytes of an update at 0.02 s each.
    assert server.speeds == [pytest.approx({"step_seconds": 0.5, "upload_seconds": 0.3 + 0.48})]


@pytest.mark.parametrize("change", [{"probe": None}, {"upload_bytes": 0}])
def test_without_a_request_nothing_is_measured(server, wanted, connection, tmp_path, change):
    server.probe.update(change)
    probe(connection, tmp_path, 2, lambda *_: pytest.fail("trained"), Outbox(tmp_path))
    assert server.speeds == server.probed == []


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/v1/models/12"), ("PUT", "/v1/probe"), ("GET", "/v1/probe"), ("POST", "/v1/probe")]
)
def test_a_failed_request_ends_the_probe(method, path, server, wanted, connection, tmp_path, fault):
    server.faults[method, path] = [fault(404, "no-such-version")] * 4
    probe(connection, tmp_path, 2, fit, Outbox(tmp_path))
    assert server.speeds == []


def test_an_error_of_the_users_or_of_the_server_is_one_line(server, wanted, connection, tmp_path):
    with pytest.raises(OffbeatError, match=r"the client's fit failed: ZeroDivisionError: "):
        probe(connection, tmp_path, 2, lambda *_: 1 / 0, Outbox(tmp_path))
    for answer in ({}, {"probe": {}, "upload_bytes": 1}, {"probe": None, "upload_bytes": 2**18 + 1}):
        server.probe = answer
        with pytest.raises(OffbeatError, match="answer to GET /v1/probe is not understood"):
            probe(connection, tmp_path, 2, fit, Outbox(tmp_path))


def test_the_real_server_plans_the_first_visit_by_it_and_never_asks_again(tmp_path, quick):
    steps = []

    def fit(model, visit):
        steps.append(visit.plan.steps)
        time.sleep(0.02 * visit.plan.steps)
        return model, 7

    # A step of 20 ms and an upload of next to nothing: many steps of it fit into a period of 60 s.
    with running(tmp_path / "server", lambda: FedLuck(period=60.0, steps=(2, 6)), clients=1, plan=PROBED) as served:
        options = {"visits": 1, "backoff": quick}
        for _ in range(2):
            run_client(served.url, lambda _: fit, tmp_path / "me", enrolment_token=served.enrolment_token, **options)
            served.service.engine.coordinator.tick(served.service.engine.run.now)
        algorithm = served.service.engine.coordinator.algorithm
        assert algorithm.model.isfinite().all()
    assert steps == [1, 1, 6, 6]


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


def test_a_function_may_have_it_too_and_numbers_of_numpy_and_torch(server, join):
    def fit(model, visit):
        return model, 3

    fit.evaluate = lambda model: ({"a": np.float32(0.5), "b": torch.tensor(2), "c": np.array(0.25)}, np.int64(7))
    assert join(fit) == 1
    metrics = {"a": 0.5, "b": 2.0, "c": 0.25}
    assert server.evaluated == [(12, {"model_sha256": server.digest(12), "examples": 7, "metrics": metrics})]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (RuntimeError("no memory"), "the client's evaluate failed: RuntimeError: no memory"),
        (0.5, "must return (metrics, examples), got a float"),
        (({"loss": math.nan}, 7), "metrics.loss"),
        (({"a b": 1.0}, 7), "metrics.a b"),
        (({}, 7), "metrics"),
        (({"loss": "high"}, 7), "loss must be a number, got 'high'"),
        (({"loss": True}, 7), "wrong value: loss must be a number, got True"),
        ((NUMBERS, np.float32(7)), "examples must be a whole number of at least 1, got np.float32(7.0)"),
        (({f"m{number}": 1.0 for number in range(33)}, 7), "metrics"),
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


@pytest.mark.parametrize(
    ("version", "status", "kind", "gives_up"),
    [(12, 404, "no-such-evaluation", False), (12, 422, "too-many-examples", True), (11, 0, "", True)],
)
def test_a_version_that_is_gone_and_a_refused_answer_are_given_up(server, join, version, status, kind, gives_up):
    server.evaluations[0]["version"] = version
    server.faults["POST", "/v1/evaluations/12"] = [Fault(status, kind)]
    assert join(Measuring()) == 1
    assert (f"/v1/evaluations/{version}/give-up" in server.paths("POST")) is gives_up


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
