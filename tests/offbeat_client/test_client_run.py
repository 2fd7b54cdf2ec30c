import math
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from offbeat_client.client_run import run_client
from offbeat_client.http.connection import Connection
from offbeat_client.visit import Fitted
from offbeat_core.compression import Encoded, decode
from offbeat_core.errors import GiveUpError, OffbeatError
from offbeat_core.http.service_errors import ServiceError
from offbeat_core.local_plan import Compression, LocalPlan
from offbeat_core.messages import CheckedIn
from safetensors.numpy import load

from tests.offbeat_client.conftest import Fault, KilledError

PLAN = LocalPlan(steps=3, batch_size=2, lr=0.1)
TOP_K = replace(PLAN, compression=Compression("top_k", (("share", 0.4),)))
HALF = 0.5


def halve(model, visit):
    """Ends every visit at half of the model, in place."""
    for tensor in model.values():
        tensor *= HALF
    return model, 7


@pytest.fixture
def run(server, tmp_path, quick):
    def call(fit=halve, **options):
        return run_client(
            server.url, lambda client: fit, tmp_path / "me", **{"enrolment_token": "obe_1", "backoff": quick, **options}
        )

    return call


def vector(server, visit):
    return load(server.bodies[visit])["update"].tolist()


@pytest.fixture
def offer(server, model):
    """Return a function that has the server offer visits of version 12."""

    def call(*numbers, **values):
        server.serve(12, model)
        for number in numbers:
            server.offer(number, 12, **values)

    return call


def test_a_life(server, run, model):
    for number, version in enumerate((12, 12, 13)):
        server.serve(version, model)
        server.offer(number, version, since=version - 1, payload="delta" if number else "params")
    server.counts = lambda visit: visit != 1
    assert run() == 2
    assert vector(server, 0) == vector(server, 2) == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert server.paths("GET") == ["/v1/probe", "/v1/models/12", "/v1/models/13"]
    head = server.announced[2]
    found = [head[name] for name in ("version", "since", "examples", "steps", "normaliser", "bytes")]
    assert found == [13, 12, 7, 3, 3.0, len(server.bodies[2])]
    assert 0 < head["step_seconds"] < 1
    assert 0 < head["upload_seconds"] < 1
    assert server.announced[0]["upload_seconds"] is None


@pytest.mark.parametrize(("excess", "asked"), [(0, []), (1, ["/v1/uploads/0"])])
def test_the_client_asks_before_a_large_update(server, run, offer, monkeypatch, excess, asked):
    offer(0)
    run()
    monkeypatch.setattr("offbeat_client.participant.LARGE_BYTES", len(server.bodies[0]) - excess)
    server.receipts.clear()
    server.heard.clear()
    offer(0)
    run()
    assert [path for path in server.paths("GET") if "uploads" in path] == asked


@pytest.mark.parametrize(("gives_next", "check_ins"), [(True, 1), (False, 4)])
def test_without_a_next_visit_the_client_checks_in(server, run, offer, gives_next, check_ins):
    server.gives_next = gives_next
    offer(0, 1, 2)
    assert run() == 3
    assert server.paths("POST").count("/v1/checkin") == check_ins


def test_a_client_that_stops_takes_no_visit_and_resumes_without_a_token(server, run, offer):
    offer(0, 1, 2)
    assert run(visits=2) == 2
    assert server.open is None
    assert run(visits=1, enrolment_token=None) == 1
    assert server.paths("POST").count("/v1/enrol") == 1
    assert server.paths("GET").count("/v1/probe") == 1


@pytest.mark.parametrize("is_receipt_lost", [False, True])
def test_after_a_kill_the_update_is_not_trained_again(server, run, offer, is_receipt_lost):
    offer(0)
    server.faults["PUT", "/v1/uploads/0"] = [Fault(before_answer=True)] if is_receipt_lost else [Fault(503)] * 4
    server.faults["GET", "/v1/uploads/0"] = [Fault(503)] * 3 if is_receipt_lost else []
    with pytest.raises(ServiceError):
        run()
    puts = server.paths("PUT")
    assert run(lambda *_: pytest.fail("trained again")) == 1
    assert len(server.paths("PUT")) == len(puts) + (not is_receipt_lost)


def test_an_update_of_a_forgotten_visit_is_dropped(server, run, offer):
    offer(0)
    server.faults["PUT", "/v1/uploads/0"] = [Fault(503)] * 4
    with pytest.raises(ServiceError):
        run()
    server.open = None
    offer(1)
    assert run() == 1
    assert sorted(server.receipts) == [1]


def test_a_client_gets_the_state_of_its_last_counted_update(server, run, offer):
    offer(0, 1, 2)
    server.counts = lambda visit: visit != 1
    seen = []

    def fit(model, visit):
        seen.append(visit.state)
        return Fitted(model, 7, state=b"after %d" % visit.number)

    assert run(fit) == 2
    offer(3)
    run(fit)
    assert seen == [None, b"after 0", b"after 0", b"after 2"]


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda *_: 1 / 0, r"^visit 0: the client's fit failed: ZeroDivisionError: .* \(.*test_client_run"),
        (lambda model, visit: ({name: tensor + np.nan for name, tensor in model.items()}, 1), "diverged"),
        (lambda model, visit: None, "fit must return"),
        (lambda model, visit: Fitted(model, 1, state="text"), "the state that fit returned must be bytes, got str"),
    ],
)
def test_a_failure_of_fit_is_one_line_and_the_visit_is_given_up(server, run, offer, fit, message):
    offer(0)
    with pytest.raises(OffbeatError, match=message):
        run(fit)
    assert server.paths("POST")[-1] == "/v1/visits/0/give-up"
    assert server.paths("PUT") == []


@pytest.mark.parametrize(
    ("make_client", "message"),
    [
        (lambda client: {}[client], "making the client failed: KeyError: 2"),
        (lambda client: 3, "got int"),
        (lambda client: SimpleNamespace(fit=halve, examples=0), "the client's examples must be a whole number"),
        (lambda client: SimpleNamespace(fit=halve, examples=2**31), "the client's examples must be at most"),
    ],
)
def test_a_client_that_cannot_be_used_is_one_line(server, tmp_path, quick, make_client, message):
    with pytest.raises(OffbeatError, match=message):
        run_client(server.url, make_client, tmp_path, enrolment_token="obe_1", backoff=quick)


def test_a_refused_update_ends_the_client_but_not_the_next_one(server, run, offer):
    offer(0, 1)
    server.faults["PUT", "/v1/uploads/0"] = [Fault(422, "norm-too-large")]
    with pytest.raises(ServiceError, match="norm-too-large"):
        run()
    assert server.paths("POST")[-1] == "/v1/visits/0/give-up"
    assert run() == 1


def give_up(model, visit):
    if visit.number == 0:
        raise GiveUpError("visit 0: not today")
    return model, 7


@pytest.mark.parametrize(
    ("fit", "values", "kind"),
    [
        (give_up, {}, ""),
        (halve, {}, "other-upload"),
        (halve, {"model_sha256": "0" * 64}, ""),
        (halve, {"version": 11}, ""),  # which the server has deleted
    ],
)
def test_the_client_continues_after_a_visit_that_it_gives_up(server, run, offer, caplog, fit, values, kind):
    offer(0, 1)
    server.visits[0] |= values
    server.faults["PUT", "/v1/uploads/0"] = [Fault(409, kind)] if kind else []
    assert run(fit) == 1
    assert sorted(server.receipts) == [1]
    assert "/v1/visits/0/give-up" in server.paths("POST")
    assert fit is halve or "visit 0: not today" in caplog.text


def test_a_lost_memory_ends_the_client(server, run, offer):
    offer(0, payload="difference", since=9)
    server.faults["PUT", "/v1/uploads/0"] = [Fault(422, "lost-memory")]
    with pytest.raises(OffbeatError, match=r"has lost what the client remembers .*take another folder"):
        run()


def test_unwanted_work_is_given_up(server, run, offer):
    offer(0, lease_seconds=0.3)
    server.beat["wanted"] = False

    def fit(model, visit):
        assert visit.urgent.wait(20)
        return model, 1

    assert run(fit) == 0
    assert server.paths("PUT") == []
    assert "/v1/visits/0/give-up" in server.paths("POST")


def test_a_client_without_work_comes_back_later(server, run, model, monkeypatch):
    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    answers = [CheckedIn(visit=None, retry_after_seconds=wait, finished=False) for wait in [1e300] + [5.0] * 50]
    real = Connection.ask

    def ask(self, method, path, *arguments, **more):
        return answers.pop() if path == "/v1/checkin" and answers else real(self, method, path, *arguments, **more)

    monkeypatch.setattr(Connection, "ask", ask)
    run()
    assert 3600 <= waits.pop(50) <= 5400  # however long the server wants it to be
    waits = [wait for wait in waits if wait >= 5]
    assert len(waits) == 50
    assert max(waits) <= 7.5
    assert len(set(waits)) == 50


@pytest.mark.parametrize(
    ("attributes", "abilities"),
    [
        ({"corrects_gradients": True}, "needs_loss, corrects_gradients, keeps_regulariser"),
        ({"corrects_gradients": 1}, "needs_loss"),
    ],
)
def test_the_client_names_its_abilities(server, run, offer, attributes, abilities):
    offer(0)
    run(SimpleNamespace(fit=halve, **attributes))
    supports = {path: headers["Offbeat-Supports"] for _, path, headers in server.heard}
    assert supports["/v1/checkin"] == supports["/v1/uploads/0"] == abilities


@pytest.mark.parametrize(
    ("first", "plan", "values"),
    [
        (0, TOP_K, {"payload": "difference"}),
        (1, replace(TOP_K, error_feedback=True), {}),
        (2, TOP_K, {"corrects_gradients": True}),
    ],
)
def test_killed_anywhere_the_client_sends_the_same(server, tmp_path, quick, model, kill_at, first, plan, values):
    """Over three visits, of which the second does not count; then all over again, killed three steps later."""

    def fit(model, visit):
        trained.append(visit.number)
        change = np.sin(np.arange(6, dtype=np.float32) * (visit.number + 1.3))
        if visit.offset is not None:
            change += np.concatenate([tensor.reshape(-1) for tensor in visit.offset.values()]) / 9
        return {"weight": model["weight"] - change[:4].reshape(2, 2), "bias": model["bias"] - change[4:]}, 1

    def live(folder):
        server.counts = lambda visit: visit != 1
        server.receipts.clear()
        server.open = None
        server.visits.clear()
        for number, since in enumerate((None, 10, 10)):
            server.serve(10 + number, model)
            server.offer(number, 10 + number, plan, since=since, **values)
        kills = 0
        while True:
            try:
                run_client(server.url, lambda client: fit, folder, enrolment_token="obe_1", backoff=quick)
                break
            except KilledError:
                kills += 1
                kill_at(math.inf)
        sent = [decode(Encoded.from_bytes(server.bodies[number], 6)) for number in range(3)]
        return kills, sent, [server.announced[number]["since"] for number in range(3)]

    trained = []
    _, expected, sinces = live(tmp_path / "unkilled")
    assert sinces == [None, 10, 10]
    for step in range(first, 1000, 3):
        kill_at(step)
        trained = []
        kills, got, _ = live(tmp_path / str(step))
        assert all(np.array_equal(one, other) for one, other in zip(got, expected, strict=True)), step
        assert len(trained) <= 4
        if not kills:
            break
    assert step > 50
