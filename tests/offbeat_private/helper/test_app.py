"""The helper's routes."""

import asyncio

import pytest
from fastapi.testclient import TestClient
from offbeat_core.serving.connections import Connections
from offbeat_private.helper import app as app_module
from offbeat_private.helper.app import make_app
from offbeat_private.helper.helper import Helper
from offbeat_private.helper.refusal import KINDS
from offbeat_private.masks.envelope import RECORD_BYTES

from tests.offbeat_private.helper.conftest import TERMS, enrol_clients, records_for


@pytest.fixture
def token(tmp_path):
    return enrol_clients(tmp_path).token


@pytest.fixture
def helper(tmp_path, token):
    opened = Helper(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def client(helper, token):
    with TestClient(make_app(helper, Connections(0, 100)), headers={"Authorization": f"Bearer {token}"}) as client:
        yield client


def kind_of(answer, status):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status == KINDS[problem["kind"]]
    assert "\n" not in problem["detail"]
    return problem["kind"]


def test_health_needs_no_token(client):
    assert client.get("/healthz", headers={"Authorization": ""}).text == "ok\n"


@pytest.mark.parametrize(
    ("authorization", "kind"),
    [("", "no-token"), ("Basic x", "no-token"), ("Bearer", "unknown-token"), ("Bearer obh_é", "unknown-token")],
)
def test_the_rest_needs_the_token(client, authorization, kind):
    headers = {"Authorization": authorization.encode("latin-1")}
    assert kind_of(client.get("/v1/helper", headers=headers), 401) == kind
    assert kind_of(client.post("/v1/batches/1", content=b"", headers=headers), 401) == kind


def test_a_body_is_bounded_and_a_sequence_of_records(client, helper):
    largest = TERMS["buffer"] * RECORD_BYTES
    assert kind_of(client.post("/v1/batches/1", content=bytes(largest + 1)), 413) == "too-large"
    assert kind_of(client.post("/v1/batches/1", content=bytes(largest - 1)), 400) == "malformed-request"
    assert kind_of(client.post("/v1/batches/1", content=b""), 422) == "too-few-clients"
    assert kind_of(client.post("/v1/batches/1", content=bytes(largest)), 422) == "wrong-run"
    assert helper.facts().head.number == 0


def test_a_body_that_does_not_end_is_refused(helper, token, monkeypatch):
    monkeypatch.setattr(app_module, "_MAX_BODY_SECONDS", 0.01)
    sent = []

    async def receive():
        await asyncio.sleep(10)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message):
        sent.append(message)

    headers = [(b"authorization", f"Bearer {token}".encode())]
    scope = {"type": "http", "method": "POST", "path": "/v1/batches/1", "headers": headers, "query_string": b""}
    asyncio.run(make_app(helper, Connections(0, 100))(scope, receive, send))
    assert sent[0]["status"] == 408
    assert b'"kind":"too-slow"' in sent[1]["body"]


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("POST", "/v1/batches/x", 400, "malformed-request"),
        ("POST", f"/v1/batches/{2**63}", 400, "malformed-request"),
        ("POST", "/v1/batches/2", 409, "wrong-number"),
        ("GET", "/v1/batches/1", 405, "method-not-allowed"),
        ("GET", "/docs", 404, "not-found"),
        ("GET", "/openapi.json", 404, "not-found"),
    ],
)
def test_other_requests_are_problems(client, method, path, status, kind):
    assert kind_of(client.request(method, path), status) == kind


def test_a_refusal_names_the_client_in_hexadecimal_digits(client, helper):
    records = records_for(helper, {0: 1, 1: 1}) + records_for(helper, {2: 1}, head=bytes(32))
    answer = client.post("/v1/batches/1", content=b"".join(records))
    assert kind_of(answer, 422) == "wrong-head"
    assert answer.json()["client"] == records[2][48:80].hex()
