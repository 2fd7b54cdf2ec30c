"""The refusals of ``PUT /v1/uploads/{number}``, and its description."""

import json

import pytest
import torch

from offbeat.service.engine.update_intake import UpdateIntake
from offbeat.service.front.request_rate import RequestRate
from tests.service.conftest import LENGTH, body_of
from tests.service.http_client import NANS, ONES, kind_of, line, snapshot, until

BODY = body_of(ONES)
PATH = "/v1/uploads/{number}"


@pytest.fixture
def peer(shared_server):
    """A client that has work before, and does it after."""
    made = shared_server.enrol()
    visit = made.check_in()
    before = snapshot(shared_server)
    yield made
    assert snapshot(shared_server) == before
    assert made.send(visit, ONES)["counted"]


def put(peer, *, number="0", vector=ONES, body=None, headers=None, query="", token=None, update=None, **changes):
    """Upload an update with some changes of the request, or of its header."""
    whole = body_of(vector)
    described = json.dumps(peer.head(peer.check_in(), whole, **changes)) if update is None else update
    given = {
        "Offbeat-Update": described,
        "Authorization": token or peer.http.headers["Authorization"],
        **(headers or {}),
    }
    given = {name: value for name, value in given.items() if value}
    return peer.http.put(f"/v1/uploads/{number}{query}", content=body or whole, headers=given)


def numbers_of_samples(server, sample):
    """Return the value of a metric's sample."""
    lines = server.service.metrics.text().decode().splitlines()
    return sum(float(text.rpartition(" ")[2]) for text in lines if text.startswith(sample))


REFUSED = [
    ({"token": "Basic x"}, 401, "no-token"),
    ({"token": "Bearer obc_" + "A" * 43}, 401, "unknown-token"),
    *(({"number": text}, 400, "malformed-request") for text in ("x", "-1", "0.5", "1e0", str(2**63), "9" * 5000)),
    ({"number": "1"}, 404, "no-such-visit"),
    ({"number": str(2**63 - 1)}, 404, "no-such-visit"),
    *(({"headers": {"Upload-Offset": text}}, 400, "malformed-request") for text in ("x", "-1", str(2**63))),
    ({"headers": {"Upload-Offset": "1"}}, 413, "too-large"),
    ({"headers": {"Upload-Offset": "1"}, "body": BODY[1:]}, 409, "wrong-offset"),
    *(({"query": f"?checkin={text}"}, 400, "malformed-request") for text in ("", "?", "2", "true&checkin=?")),
    ({"body": iter([BODY])}, 411, "length-required"),
    *(({"update": text}, 400, "malformed-request") for text in ("", "{}", "[]", "x" * 5000)),
    ({"bytes": 10**12}, 413, "too-large"),
    ({"bytes": len(BODY) - 1}, 413, "too-large"),
    ({"version": 5}, 422, "wrong-version"),
    ({"model_sha256": "0" * 64}, 404, "no-such-visit"),
    ({"steps": 3}, 422, "wrong-plan"),
    ({"normaliser": 1e3}, 422, "wrong-plan"),
    ({"sha256": "0" * 64}, 422, "wrong-digest"),
    ({"vector": NANS}, 422, "not-finite"),
    ({"vector": torch.ones(LENGTH - 1)}, 422, "wrong-shape"),
]  # fmt: skip
"""Changes of an upload, and the status and the kind of its refusal."""


@pytest.mark.parametrize(("changes", "status", "kind"), REFUSED)
def test_a_refusal_is_counted_and_changes_nothing(changes, status, kind, peer, shared_server):
    samples = [f'offbeat_refusals_total{{kind="{kind}"}}', f'offbeat_request_seconds_count{{route="{PATH}"}}']
    before = [numbers_of_samples(shared_server, sample) for sample in samples]
    answer = put(peer, **changes)
    assert kind_of(answer, status) == kind
    assert [numbers_of_samples(shared_server, sample) for sample in samples] == [number + 1 for number in before]


def test_the_token_of_an_admin_and_that_of_a_revoked_client_are_refused(shared_server):
    peer = shared_server.enrol()
    visit = peer.check_in()
    assert kind_of(shared_server.admin.put(visit, BODY), 403) == "foreign-token"
    number = len(shared_server.service.accounts) - 1
    assert shared_server.admin.http.delete(f"/v1/clients/{number}").status_code == 204
    assert kind_of(peer.put(visit, BODY), 401) == "revoked-token"


def test_a_client_that_asks_too_often_and_a_server_that_stops_refuse(peer, shared_server, monkeypatch):
    visit = peer.check_in()
    with monkeypatch.context() as patch:
        patch.setattr(shared_server.front.rate, "take", RequestRate(1e-3, 1).take)
        assert kind_of(peer.put(visit, BODY, sha256="0" * 64), 422) == "wrong-digest"
        answer = peer.put(visit, BODY)
        assert (kind_of(answer, 429), answer.headers["retry-after"]) == ("too-many-requests", "1")
        patch.setattr(shared_server.front.rate, "take", RequestRate(1.0, 1).take)
        patch.setattr(shared_server.service, "is_ready", False)
        assert kind_of(peer.put(visit, BODY), 503) == "stopping"


def test_an_error_of_the_server_is_status_500_and_the_next_upload_counts(peer, shared_server, monkeypatch):
    async def fail(*_, **__):
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(UpdateIntake, "take", fail)
        answer = peer.put(peer.check_in(), BODY)
    assert (answer.status_code, b"bug" in answer.content) == (500, False)


@pytest.mark.parametrize("path", ["/v1/uploads", "/v1/uploads/", "/v1/uploads/0/", "/v1/uploads/0/1"])
def test_paths_beside_the_route_are_unknown(path, peer):
    assert kind_of(peer.http.put(path, content=BODY), 404) == "not-found"


def test_other_methods_are_not_allowed(peer):
    assert kind_of(peer.http.delete("/v1/uploads/0"), 405) == "method-not-allowed"


def test_a_client_that_leaves_during_its_upload_is_not_an_error(peer, shared_server, caplog):
    uploads = shared_server.front.uploads
    with line(shared_server, peer) as opened:
        head = json.dumps(peer.head(peer.check_in(), BODY))
        opened.begin("PUT", "/v1/uploads/0", f"Offbeat-Update: {head}", length=len(BODY))
        opened.send(BODY[:10])
        until(lambda: uploads._small)
    until(lambda: not uploads._small)
    peer.check_in()  # after the end of the upload's task
    assert caplog.records == []


def test_the_description_has_the_limits_that_the_route_has(peer):
    described = peer.http.get("/openapi.json").json()["paths"][PATH]["put"]
    assert described["responses"].keys() == {"200", "202", "default"}
    parameters = {each["name"]: (each["in"], each["schema"]) for each in described["parameters"]}
    assert {name: place for name, (place, _) in parameters.items()} == {
        "number": "path",
        "checkin": "query",
        **dict.fromkeys(("content-length", "upload-offset"), "header"),
        **dict.fromkeys(("offbeat-update", "offbeat-supports", "offbeat-protocol"), "header"),
    }
    for name, changed in (("number", lambda text: {"number": text}), ("upload-offset", _with_offset)):
        limits = parameters[name][1]
        for value in (limits["minimum"], limits["maximum"]):
            assert put(peer, **changed(str(value)), sha256="0" * 64).status_code != 400
        for value in (limits["minimum"] - 1, limits["maximum"] + 1):
            assert kind_of(put(peer, **changed(str(value))), 400) == "malformed-request"
    assert parameters["checkin"][1]["type"] == "boolean"


def _with_offset(text):
    return {"headers": {"Upload-Offset": text}}
