import pytest
from starlette.requests import Request

from offbeat.service.http.request_parts import authenticate, bearer_token, required_length
from offbeat.service.refusal import Refusal


def scope(authorization=None, path="/v1/checkin"):
    headers = [] if authorization is None else [(b"authorization", authorization.encode("latin-1"))]
    return {"type": "http", "path": path, "headers": headers, "client": ("10.0.0.1", 999)}


@pytest.mark.parametrize(
    ("authorization", "token"),
    [(None, None), ("Bearer x", "x"), ("bearer  x ", "x"), ("Basic x", None), ("Bearer", ""), ("\xff", None)],
)
def test_a_bearer_token_is_read(authorization, token):
    assert bearer_token(Request(scope(authorization))) == token


def test_a_length_is_required():
    assert required_length(0) == 0
    with pytest.raises(Refusal) as caught:
        required_length(None)
    assert caught.value.kind == "length-required"


@pytest.mark.parametrize(("path", "may_have_ended"), [("/v1/checkin", False), ("/v1/enrol", True)])
def test_only_an_enrolment_token_may_have_ended_and_a_valid_one_makes_the_connection_trusted(path, may_have_ended):
    seen = []

    class Parts:
        accounts = property(lambda self: self)

        def check_any(self, token, *, may_have_ended):
            seen.append((token, may_have_ended))

        def trust(self, peer, token):
            seen.append((peer, token))

    parts = Parts()
    authenticate(parts, parts, scope("Bearer x", path))
    assert seen == [("x", may_have_ended), (("10.0.0.1", 999), "x")]
