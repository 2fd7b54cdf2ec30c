import asyncio
import socket
import ssl
from contextlib import ExitStack, suppress

import httpx
import pytest
from fastapi.testclient import TestClient
from offbeat_core.errors import OffbeatError
from offbeat_core.serving.connections import Connections
from offbeat_private.helper import helper_server
from offbeat_private.helper.helper import Helper
from offbeat_private.helper.helper_refusal import KINDS
from offbeat_private.helper.helper_server import make_app
from offbeat_private.masks.envelope import RECORD_BYTES

from tests.offbeat_private.helper.conftest import TERMS, enrol_clients, records_for, running


def test_a_helper_listens_over_https_and_can_be_started_again(tmp_path, monkeypatch):
    enrol_clients(tmp_path)
    for _ in range(2):
        with running(tmp_path) as url:
            context = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.pem")
            assert httpx.get(f"{url}/healthz", verify=context).text == "ok\n"
            with pytest.raises(OffbeatError, match="in use by another helper"), running(tmp_path):
                pass
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr("tests.offbeat_private.helper.conftest.PORT", port)
        with pytest.raises(OffbeatError, match=f":{port}: it is in use: choose another --host or --port"):
            running(tmp_path).__enter__()


def test_strangers_that_hold_connections_do_not_keep_the_server_out(tmp_path, monkeypatch):
    """As many as the helper accepts at all: those without a token are closed after a moment."""
    monkeypatch.setattr("offbeat_private.helper.helper_server.max_connections", lambda _: 16)
    token = enrol_clients(tmp_path).token
    with running(tmp_path) as url, ExitStack() as held:
        context = ssl.create_default_context(cafile=tmp_path / "tls" / "ca.pem")
        port = int(url.rpartition(":")[2])
        for _ in range(20):
            stranger = held.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            with suppress(OSError):  # closed, or not accepted yet
                held.enter_context(context.wrap_socket(stranger, server_hostname="127.0.0.1"))
        answer = httpx.get(f"{url}/v1/helper", verify=context, timeout=20, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200


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


@pytest.mark.parametrize(
    ("authorization", "kind"),
    [("", "no-token"), ("Basic x", "no-token"), ("Bearer", "unknown-token"), ("Bearer obh_é", "unknown-token")],
)
def test_all_but_health_needs_the_token(client, authorization, kind):
    assert client.get("/healthz", headers={"Authorization": ""}).text == "ok\n"
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
    monkeypatch.setattr(helper_server, "_MAX_BODY_SECONDS", 0.01)
    sent = []

    async def receive():
        await asyncio.sleep(10)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async def send(message):
        sent.append(message)

    headers = [(b"authorization", f"Bearer {token}".encode()), (b"transfer-encoding", b"chunked")]
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
