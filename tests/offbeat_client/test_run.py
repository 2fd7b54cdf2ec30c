import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from offbeat_client.compression import Encoded, decode
from offbeat_client.errors import OffbeatError
from offbeat_client.http.connection import Connection
from offbeat_client.http.refusal import ServiceError
from offbeat_client.local_plan import Compression, LocalPlan
from offbeat_client.messages import CheckedIn
from offbeat_client.run import run_client

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


def test_a_life(server, run, model):
    for number, version in enumerate((12, 12, 13)):
        server.serve(version, model)
        server.offer(number, version, since=version - 1, payload="delta" if number else "params")
    server.counts = lambda visit: visit != 1
    assert run() == 2
    assert vector(server, 0) == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert vector(server, 2) == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert server.paths("GET") == ["/v1/probe", "/v1/models/12", "/v1/models/13"]
    head = server.announced[2]
    assert (head["version"], head["since"], head["examples"], head["steps"]) == (13, 12, 7, 3)
    assert (head["normaliser"], head["bytes"]) == (3.0, len(server.bodies[2]))
    assert 0 < head["step_seconds"] < 1
    assert 0 < head["upload_seconds"] < 1
    assert server.announced[0]["upload_seconds"] is None


@pytest.mark.parametrize("gives_next", [True, False])
def test_without_a_next_visit_the_client_checks_in(server, run, model, gives_next):
    server.gives_next = gives_next
    server.serve(12, model)
    for number in range(3):
        server.offer(number, 12)
    assert run() == 3
    assert server.paths("POST").count("/v1/checkin") == (1 if gives_next else 4)


def test_a_client_that_stops_takes_no_visit(server, run, model):
    server.serve(12, model)
    for number in range(3):
        server.offer(number, 12)
    assert run(visits=2) == 2
    assert server.open is None
    assert len(server.visits) == 1


def test_a_client_stops_after_visits_and_resumes_without_a_token(server, run, model):
    server.serve(12, model)
    for number in range(3):
        server.offer(number, 12)
    assert run(visits=1) == 1
    assert run(visits=1, enrolment_token=None) == 1
    assert sorted(server.receipts) == [0, 1]
    assert server.paths("POST").count("/v1/enrol") == 1


def test_after_a_kill_the_update_is_not_trained_again(server, run, model, fault):
    server.serve(12, model)
    server.offer(0, 12)
    server.faults["PUT", "/v1/uploads/0"] = [fault(503)] * 4
    with pytest.raises(ServiceError):
        run()
    trained = []
    assert run(lambda model, visit: trained.append(visit)) == 1
    assert trained == []


def test_after_a_kill_the_receipt_is_requested(server, run, model, fault):
    server.serve(12, model)
    server.offer(0, 12)
    server.faults["PUT", "/v1/uploads/0"] = [fault(before_answer=True)]
    server.faults["GET", "/v1/uploads/0"] = [fault(503)] * 3
    with pytest.raises(ServiceError):
        run()
    assert run() == 1
    assert len(server.paths("PUT")) == 1


def test_an_update_of_a_forgotten_visit_is_dropped(server, run, model, fault):
    server.serve(12, model)
    server.offer(0, 12)
    server.faults["PUT", "/v1/uploads/0"] = [fault(503)] * 4
    with pytest.raises(ServiceError):
        run()
    server.open = None
    server.offer(1, 12)
    assert run() == 1
    assert sorted(server.receipts) == [1]


def test_an_error_in_the_users_code_is_one_line_and_the_visit_is_given_up(server, run, model):
    def fit(model, visit):
        raise ZeroDivisionError("mine")

    server.serve(12, model)
    server.offer(0, 12)
    with pytest.raises(OffbeatError, match=r"^visit 0: the client's fit failed: ZeroDivisionError: mine \(.*test_run"):
        run(fit)
    assert server.paths("POST")[-1] == "/v1/visits/0/give-up"


@pytest.mark.parametrize("value", [float("nan"), None])
def test_an_invalid_result_is_one_line_and_the_visit_is_given_up(server, run, model, value):
    server.serve(12, model)
    server.offer(0, 12)
    with pytest.raises(OffbeatError, match=r"diverged|fit must return"):
        run(lambda model, visit: value and ({name: tensor + value for name, tensor in model.items()}, 1))
    assert server.paths("POST")[-1] == "/v1/visits/0/give-up"
    assert server.paths("PUT") == []


def test_a_factory_that_fails_is_one_line(server, tmp_path, quick):
    def make(client):
        raise KeyError("mine")

    for factory, problem in ((make, "making the client failed: KeyError"), (lambda client: 3, "got int")):
        with pytest.raises(OffbeatError, match=problem):
            run_client(server.url, factory, tmp_path, enrolment_token="obe_1", backoff=quick)


def test_the_factory_gets_the_clients_number(server, tmp_path, quick):
    heard = []
    run_client(server.url, lambda n: heard.append(n) or halve, tmp_path, enrolment_token="obe_1", backoff=quick)
    assert heard == [2]


def test_an_object_with_fit_is_a_client(server, run, model):
    class Mine:
        fit = staticmethod(halve)

    server.serve(12, model)
    server.offer(0, 12)
    assert run(Mine()) == 1


def test_a_refused_update_ends_the_client_but_not_the_next_one(server, run, model, fault):
    server.serve(12, model)
    server.offer(0, 12)
    server.offer(1, 12)
    server.faults["PUT", "/v1/uploads/0"] = [fault(422, "norm-too-large")]
    with pytest.raises(ServiceError, match="norm-too-large"):
        run()
    assert server.paths("POST")[-1] == "/v1/visits/0/give-up"
    assert run() == 1


def test_the_client_continues_after_another_upload(server, run, model, fault):
    server.serve(12, model)
    server.offer(0, 12)
    server.offer(1, 12)
    server.faults["PUT", "/v1/uploads/0"] = [fault(409, "other-upload")]
    assert run() == 1
    assert sorted(server.receipts) == [1]


@pytest.mark.parametrize("is_said", [True, False])
def test_the_client_continues_after_a_deleted_version(is_said, server, run, model, fault):
    if not is_said:  # the file went just when it was to be sent
        server.faults["GET", "/v1/models/12"] = [fault(404)]
    server.serve(13, model)
    server.offer(0, 12)
    server.offer(1, 13)
    assert run() == 1
    assert "/v1/visits/0/give-up" in server.paths("POST")


def test_unwanted_work_is_given_up(server, run, model):
    server.serve(12, model)
    server.offer(0, 12, lease_seconds=0.3)
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
    answers = [CheckedIn(visit=None, retry_after_seconds=5.0, finished=False)] * 50
    real = Connection.ask

    def ask(self, method, path, *arguments, **more):
        return answers.pop() if path == "/v1/checkin" and answers else real(self, method, path, *arguments, **more)

    monkeypatch.setattr(Connection, "ask", ask)
    run()
    waits = [wait for wait in waits if wait >= 5]
    assert len(waits) == 50
    assert max(waits) <= 7.5
    assert len(set(waits)) == 50


class TestDifference:
    def test_a_difference_is_to_the_last_counted_update(self, server, run, model):
        server.counts = lambda visit: visit != 1
        ends = {0: 1.0, 1: 10.0, 2: 3.0}
        for number, since in enumerate((None, 10, 10)):
            server.serve(10 + number, model)
            server.offer(number, 10 + number, payload="difference", since=since)
        run(lambda model, visit: ({name: tensor - ends[visit.number] for name, tensor in model.items()}, 1))
        assert [vector(server, number) for number in range(3)] == [[1.0] * 6, [9.0] * 6, [2.0] * 6]
        assert [server.announced[number]["since"] for number in range(3)] == [None, 10, 10]

    def test_a_lost_memory_ends_the_client(self, server, run, model, fault):
        server.serve(12, model)
        server.offer(0, 12, payload="difference", since=9)
        server.faults["PUT", "/v1/uploads/0"] = [fault(422, "lost-memory")]
        with pytest.raises(OffbeatError, match=r"has lost what the client remembers .*take another folder"):
            run()


class TestCorrection:
    """Values for a visit: the vector beside the model is 2 everywhere, and P is ½."""

    PLAN = LocalPlan(steps=2, batch_size=1, lr=0.25)

    @pytest.fixture
    def offsets(self, server, run, model):
        """Return a function that makes clients learn deltas, and returns by how much their gradients were corrected."""

        def correct(deltas, sinces):
            for number, since in enumerate(sinces):
                server.serve(10 + number, model)
                server.offer(number, 10 + number, self.PLAN, since=since, corrects_gradients=True)
            heard = []

            def fit(model, visit):
                heard.append([*visit.offset["weight"].reshape(-1).tolist(), *visit.offset["bias"].tolist()])
                for tensor in visit.offset.values():
                    tensor.fill(77)  # they are its own
                return {name: tensor - deltas[visit.number] for name, tensor in model.items()}, 1

            fit.corrects_gradients = True
            run(fit)
            return heard

        return correct

    def test_c_i_belongs_to_the_last_counted_update(self, server, offsets):
        server.counts = lambda visit: visit != 1
        heard = offsets([3.0, 5.0, 2.0, 0.0], [None, 10, 10, 12])
        # c_i: 3/½ − 2 = 4 after visit 0, and 2/½ − (2 − 4) = 6 after visit 2; visit 1 does not count.
        assert heard == [[2.0 - own] * 6 for own in (0.0, 4.0, 4.0, 6.0)]
        assert [server.announced[number]["since"] for number in range(4)] == [None, 10, 10, 12]
        assert vector(server, 1) == [5.0] * 6


@pytest.mark.parametrize("value", [True, False, None, 1])
def test_the_client_names_its_abilities(server, run, model, value):
    def fit(model, visit):
        return model, 1

    if value is not None:
        fit.corrects_gradients = value
    server.serve(12, model)
    server.offer(0, 12)
    run(fit)
    said = {path: headers["Offbeat-Supports"] for _, path, headers in server.heard}
    expected = "needs_loss, corrects_gradients" if value is True else "needs_loss"
    assert said["/v1/checkin"] == said["/v1/uploads/0"] == expected


class KilledError(BaseException):
    pass


@pytest.fixture
def kill_at(monkeypatch):
    """Return a function that makes the n-th change of the disk, or request, or answer, from now on a kill."""
    # What is only killed need not be brought to disk.
    sync = [(os, name, lambda descriptor: None) for name in ("fsync", "fdatasync")]
    real = [(Path, "replace", Path.replace), (Path, "unlink", Path.unlink), *sync]
    send = Connection.send
    main = threading.main_thread()
    left = 0

    def count():
        nonlocal left
        left -= 1
        if left < 0 and threading.current_thread() is main:
            raise KilledError

    def killable(function):
        def wrapped(*arguments, **options):
            count()
            return function(*arguments, **options)

        return wrapped

    def killable_twice(*arguments, **options):
        count()
        response = send(*arguments, **options)
        count()
        return response

    for owner, name, function in real:
        monkeypatch.setattr(owner, name, killable(function))
    monkeypatch.setattr(Connection, "send", killable_twice)

    def arm(n):
        nonlocal left
        left = n

    return arm


@pytest.mark.parametrize(
    ("plan", "values"),
    [
        (TOP_K, {"payload": "difference"}),
        (replace(TOP_K, error_feedback=True), {}),
        (TOP_K, {"corrects_gradients": True}),
    ],
)
def test_killed_anywhere_the_client_resumes_and_sends_the_same(server, tmp_path, quick, model, kill_at, plan, values):
    """Over three visits, of which the second does not count; then all over again, killed one step later."""

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
                kill_at(10_000)
        sent = [server.bodies[number] for number in range(3)]
        return kills, [decode(Encoded.from_bytes(body, 6)) for body in sent]

    kill_at(10_000)
    trained = []
    _, expected = live(tmp_path / "unkilled")
    for step in range(1000):
        kill_at(step)
        trained = []
        kills, got = live(tmp_path / str(step))
        assert all(np.array_equal(one, other) for one, other in zip(got, expected, strict=True)), step
        assert len(trained) <= 4
        if not kills:
            break
    assert step > 50
