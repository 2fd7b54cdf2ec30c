"""A client measures itself before its first visit, if the server asks for it."""

import time

import pytest
from offbeat_client import run_client
from offbeat_client.client_folder.outbox import Outbox
from offbeat_client.probe import probe
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import LocalPlan

from offbeat.algorithms import FedLuck
from tests.service.conftest import running

PLAN = LocalPlan(steps=4, batch_size=3, lr=0.5)


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


def test_the_users_error_is_one_line(wanted, connection, tmp_path):
    def fit(model, visit):
        raise ZeroDivisionError("mine")

    with pytest.raises(OffbeatError, match=r"the client's fit failed: ZeroDivisionError: mine"):
        probe(connection, tmp_path, 2, fit, Outbox(tmp_path))


@pytest.mark.parametrize("answer", [{}, {"probe": {}, "upload_bytes": 1}, {"probe": None, "upload_bytes": 2**18 + 1}])
def test_an_invalid_answer_is_one_line(answer, server, connection, tmp_path):
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
    with running(tmp_path / "server", lambda: FedLuck(period=60.0, steps=(2, 6)), clients=1, plan=PLAN) as served:
        options = {"visits": 1, "backoff": quick}
        for _ in range(2):
            run_client(served.url, lambda _: fit, tmp_path / "me", enrolment_token=served.enrolment_token, **options)
            served.service.engine.coordinator.tick(served.service.engine.run.now)
        algorithm = served.service.engine.coordinator.algorithm
        assert algorithm.model.isfinite().all()
    assert steps == [1, 1, 6, 6]
