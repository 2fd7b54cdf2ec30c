import asyncio

import pytest

from offbeat.service.http.request_parts import bearer_token
from offbeat.service.http.session_cookie import SessionCookie, cookie

TOKEN = "obs_" + "A" * 43
PAGE = ("offbeat-page", "1")
COOKIE = ("cookie", f"a=b; __Host-offbeat={TOKEN}; c")


def scope_of(*headers, kind="http"):
    return {"type": kind, "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers]}


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ([PAGE, COOKIE], TOKEN),
        ([PAGE, ("cookie", "a=b"), COOKIE], TOKEN),
        ([PAGE, COOKIE, ("authorization", "Bearer x")], "x"),
        ([PAGE, COOKIE, ("authorization", "Basic x")], None),
        ([COOKIE], None),
        ([("offbeat-page", "0"), COOKIE], None),
        ([PAGE, ("cookie", f"offbeat={TOKEN}")], None),
        ([PAGE, ("cookie", f"x__Host-offbeat={TOKEN}")], None),
        ([PAGE, ("cookie", "__Host-offbeat")], None),
        ([PAGE], None),
    ],
)
def test_the_cookie_is_the_token_of_the_pages_requests(headers, token):
    seen = []

    async def app(scope, receive, send):
        seen.append(bearer_token(scope))
        assert [name for name, _ in scope["headers"]].count(b"authorization") <= 1

    asyncio.run(SessionCookie(app, "__Host-offbeat")(scope_of(*headers), None, None))
    assert seen == [token]


def test_a_cookies_value_may_have_any_letters():
    assert cookie(scope_of(("cookie", "a=\xe9=\xff")), "a") == "\xe9=\xff"
    assert cookie(scope_of(), "a") is None
