from dataclasses import fields

import httpx
import pytest
from offbeat_client.http.connection import read_answer
from offbeat_client.visit import visit_of
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import Compression, LocalPlan
from offbeat_core.messages import Answer, CheckedIn, Enrolled, Enrolment, PlanMessage, UploadState, VisitMessage
from pydantic import ValidationError

VISIT = {
    "number": 4,
    "version": 12,
    "model_sha256": "c8" * 32,
    "since": 9,
    "payload": "delta",
    "length": 7850,
    "seed": 8230191,
    "plan": {"steps": 2, "batch_size": 32, "lr": [0.1, 0.05], "compression": None, "error_feedback": False},
    "lease_seconds": 600.0,
    "urgent": False,
}
TOP_K = {"name": "top_k", "parameters": {"share": 0.01}}


def read(values, kind=CheckedIn):
    request = httpx.Request("POST", "https://host/v1/checkin")
    return read_answer(httpx.Response(200, json=values, request=request), kind)


def read_visit(client=0, **changes):
    return visit_of(read({**VISIT, **changes}, VisitMessage), client)


@pytest.mark.parametrize("urgent", [False, True])
def test_a_visit_has_all_values(urgent):
    visit = read_visit(client=17, urgent=urgent)
    assert (visit.client, visit.number, visit.version, visit.since, visit.length) == (17, 4, 12, 9, 7850)
    assert visit.model_sha256 == "c8" * 32
    assert (visit.payload, visit.seed, visit.lease_seconds) == ("delta", 8230191, 600.0)
    assert visit.plan == LocalPlan(steps=2, batch_size=32, lr=(0.1, 0.05))
    assert visit.urgent.is_set() is urgent


@pytest.mark.parametrize("name", ["corrects_gradients", "needs_loss"])
def test_a_visit_without_corrections_losses_and_shares(name):
    assert getattr(read_visit(**{name: True}), name)
    assert not getattr(read_visit(), name)
    assert read(VISIT, VisitMessage).privacy is None
    assert read({"wanted": True, "offset": 0, "receipt": None}, UploadState).share is None


SHARE = {
    "version": 13,
    "scale": 0.5,
    "epoch": {"number": 1, "public_key": "0a" * 32, "signature": "0b" * 64},
    "head": {"number": 101, "digest": "0c" * 32, "signature": "0d" * 64},
}


def read_share(values):
    return read({"wanted": True, "offset": 0, "receipt": None, "share": values}, UploadState).share


def test_the_facts_of_a_share_survive_the_wire():
    share = read_share(SHARE)
    assert share.model_dump() == SHARE
    assert UploadState(wanted=True, offset=0, receipt=None, share=share).model_dump(mode="json")["share"] == SHARE
    privacy = {"terms": "0e" * 32}
    assert read({**VISIT, "privacy": privacy}, VisitMessage).privacy.model_dump() == privacy


@pytest.mark.parametrize(
    ("path", "value"),
    [
        *((path, value) for path in ("version", "head.number") for value in (-1, 2**63, 1.5, True)),
        *(("scale", value) for value in (-0.5, "1", 1e39)),
        *(("epoch.number", value) for value in (-1, 2**32)),
        *(("epoch.public_key", value) for value in ("0a" * 31, "0a" * 33, "0A" * 32, "0a" * 32 + "\n", 7)),
        *((path, "0a" * 32) for path in ("epoch.signature", "head.signature")),
        ("head.digest", ""),
        ("epoch", None),
        ("head", {}),
    ],
)
def test_malformed_facts_of_a_share_are_refused(path, value):
    outer, _, inner = path.partition(".")
    with pytest.raises(OffbeatError, match=rf"is not understood \(share.{path}"):
        read_share(SHARE | {outer: SHARE[outer] | {inner: value} if inner else value})


@pytest.mark.parametrize(
    "plan",
    [
        LocalPlan(2, 32, (0.1, 0.05), momentum=0.5, weight_decay=0.01, clip_norm=2.0, by_epochs=True),
        LocalPlan(1, 1, 0.1, mu=0.5, compression=Compression("qsgd", (("bits", 4),))),
        LocalPlan(1, 1, 0.1, compression=Compression("random_k", (("share", 0.5), ("scaled", False)))),
        LocalPlan(1, 1, 0.1, compression=Compression("sign"), error_feedback=True),
        LocalPlan(1, 1, 0.1, optimizer="adamw", weight_decay=0.1),
    ],
)
def test_a_plan_survives_the_wire(plan):
    read_plan = PlanMessage.model_validate_json(PlanMessage.of(plan).model_dump_json()).plan()
    assert read_plan == plan
    assert repr(read_plan) == repr(plan)  # 4 is not 4.0, nor False 0


@pytest.mark.parametrize(
    "changes",
    [
        {"plan": None},
        {"privacy": {}},
        {"privacy": {"terms": "0e"}},
        {"plan": {**VISIT["plan"], "unheard_of": 1}},
        {"plan": {**VISIT["plan"], "optimizer": "adamw", "momentum": 0.5}},
        {"plan": {**VISIT["plan"], "compression": {"name": "unheard_of", "parameters": {}}}},
        {"plan": {**VISIT["plan"], "compression": {"name": "top_k", "parameters": {"unheard_of": 1}}}},
        {"plan": {**VISIT["plan"], "lr": -1}},
        {"payload": "params", "plan": {**VISIT["plan"], "compression": TOP_K}},
        {"number": None},
        {"model_sha256": "../" * 21 + "x"},
    ],
)
def test_an_unknown_visit_is_refused_before_training(changes):
    with pytest.raises(OffbeatError, match=r"is not understood \(.*as new as the server's"):
        read_visit(**changes)


def test_the_refusal_names_the_request_and_the_key():
    with pytest.raises(OffbeatError, match=r"answer to POST /v1/checkin is not understood \(visit.plan.steps: "):
        read({"visit": {**VISIT, "plan": {}}, "retry_after_seconds": None, "finished": False})


@pytest.mark.parametrize("content", [b"<html>", b"[]", b"3", b"\xff"])
def test_an_answer_that_is_not_a_json_object_is_another_servers(content):
    response = httpx.Response(200, content=content, request=httpx.Request("GET", "https://host/"))
    with pytest.raises(OffbeatError, match="did not answer as an Offbeat server does"):
        read_answer(response, Answer)
    nothing = httpx.Response(204, request=response.request)
    assert read_answer(nothing, Answer) == Answer()


def test_clients_ignore_unknown_keys_of_later_versions_and_servers_refuse_them():
    assert read({"client": 2, "token": "obc_1", "expires_seconds": None, "later": 1}, Enrolled).client == 2
    with pytest.raises(ValidationError, match="later"):
        Enrolment.model_validate({"later": 1})


def test_a_plan_on_the_wire_is_a_visits_plan():
    """A field that a plan gets is in the message too, or is one of a run's plan alone."""
    names = {field.name for field in fields(LocalPlan)}
    assert names - PlanMessage.model_fields.keys() == {"lr_decay", "steps_by"}
