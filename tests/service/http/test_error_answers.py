import json

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from starlette.requests import ClientDisconnect

from offbeat.service.engine.prometheus_metrics import Metrics
from offbeat.service.http.error_answers import add_error_answers
from offbeat.service.refusal import Refusal


class Service:
    def __init__(self):
        self.metrics = Metrics()
        self.engine = self
        self.disk = self
        self.accounts = self
        self.audit = self
        self.counted: list[tuple[str, str]] = []

    def count(self, kind, name):
        self.counted.append((kind, name))

    def refusal(self, error):
        return Refusal("no-space", error.strerror, {"Retry-After": "5"})


@pytest.fixture
def service():
    return Service()


@pytest.fixture
def ask(service):
    app, errors = FastAPI(), []

    @app.get("/fails")
    @app.get("/models/{version}")
    async def fails(number: int = 0):
        raise errors[0]

    add_error_answers(app, service)

    def get(path, error=None):
        errors[:] = [error]
        return TestClient(app).get(path)

    return get


@pytest.mark.parametrize(
    ("path", "error", "status", "kind"),
    [
        ("/fails", Refusal("busy", "later"), 503, "busy"),
        ("/fails", OSError(28, "full", "file"), 503, "no-space"),
        ("/fails", FileNotFoundError(2, "missing", "file"), 503, "no-space"),
        ("/models/3", FileNotFoundError(2, "missing", "file"), 404, "no-such-version"),
        ("/models/3", OSError(28, "full", "file"), 503, "no-space"),
        ("/fails?number=x", None, 400, "malformed-request"),
        ("/nothing", None, 404, "not-found"),
    ],
)
def test_every_error_is_a_problem_that_is_counted_and_logged(path, error, status, kind, ask, service, caplog):
    answer = ask(path, error)
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert answer.json().keys() == {"title", "status", "kind", "detail"}
    assert answer.json()["kind"] == kind
    assert f'offbeat_refusals_total{{kind="{kind}"}} 1.0' in service.metrics.text().decode()
    assert service.counted == [("refusals", kind)]
    (logged,) = [record for record in caplog.records if record.message == "refused"]
    assert logged.fields == {"kind": kind, "detail": answer.json()["detail"]}


def test_a_refusal_keeps_its_headers(ask):
    assert ask("/fails", Refusal("busy", "later", {"Retry-After": "5"})).headers["retry-after"] == "5"


def test_a_closed_connection_is_not_a_refusal(ask, service):
    assert ask("/fails", ClientDisconnect()).status_code == 499
    assert "offbeat_refusals_total{" not in service.metrics.text().decode()


def test_an_error_that_is_not_the_disks_is_a_bug(ask):
    with pytest.raises(OSError, match="no name"):
        ask("/fails", OSError("no name"))


def test_a_detail_is_one_short_line_of_ascii(ask):
    detail = json.loads(ask("/fails?number=é%0A" + "x" * 1000).content)["detail"]
    assert len(detail) < 500
    assert detail.isascii()
    assert len(detail.splitlines()) == 1
