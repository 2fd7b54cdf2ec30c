import re

import httpx
import pytest
from offbeat_core.http.service_errors import read_refusal

PROBLEM = {"title": "Conflict", "status": 409, "kind": "full", "detail": "all 3 clients have enrolled"}


def refusal(status=409, headers=None, **body):
    return read_refusal("POST /v1/enrol", httpx.Response(status, headers=headers, **body))


def test_a_problem_has_a_kind_and_a_detail():
    error = refusal(json=PROBLEM)
    assert str(error) == "POST /v1/enrol: all 3 clients have enrolled (409 full)"
    assert (error.status, error.kind, error.detail, error.retry_after) == (409, "full", PROBLEM["detail"], None)


@pytest.mark.parametrize(
    "body", [{"content": b"<html>"}, {"json": [1]}, {"json": {"detail": 3}}, {"json": {}}, {"content": b""}]
)
def test_a_proxys_answer_has_the_statuss_own_words(body):
    assert str(refusal(502, **body)) == "POST /v1/enrol: Bad Gateway (502)"


@pytest.mark.parametrize(
    ("status", "location", "content", "expected"),
    [
        (404, "", b"\n<html>", "Not Found, not an Offbeat server's answer: it is a web page; check host, port and"),
        (302, "http://login\x1b[2J", b"", r"Found, not an .*: it redirects to http://login\?\[2J; check"),
        (400, "", b"", r"Bad Request \(400\)$"),
        (
            400,
            "",
            b"<html>The plain HTTP request was sent to HTTPS port",
            "Bad Request, .*: its port takes HTTPS alone",
        ),
        (400, "", b"You're speaking plain HTTP to an SSL-enabled server port", "Bad Request, .*: write https://"),
    ],
)
def test_an_answer_of_another_program_names_the_cause(status, location, content, expected):
    message = str(refusal(status, {"Location": location} if location else {}, content=content))
    assert re.match(f"POST /v1/enrol: {expected}", message)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("5", 5.0), ("0.5", 0.5), ("-3", 0.0), ("inf", 3600.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None)],
)
def test_the_server_may_name_a_time(value, seconds):
    assert refusal(503, {"Retry-After": value}, json=PROBLEM).retry_after == seconds


@pytest.mark.parametrize(
    ("status", "passes"), [(400, False), (404, False), (408, True), (422, False), (429, True), (503, True)]
)
def test_which_refusals_may_pass(status, passes):
    assert refusal(status, json=PROBLEM).may_pass is passes
