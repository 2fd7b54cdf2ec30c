"""Callbacks and providers that are not what they should be."""

import gzip
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from offbeat.service.login import bounded_fetch, login
from tests.service.login.conftest import BrowserAt, Fooled, serving_people
from tests.service.login.false_provider import KEY, OTHER_KEY, sign
from tests.service.login.real_provider import free_port

DESCRIPTION = "/.well-known/openid-configuration"


def refused(answer: httpx.Response, status: int, line: str) -> None:
    """Check that an answer is a plain page with this line, and gives no session."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert f'<p class="problem">{line}' in answer.text
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "set-cookie" not in answer.headers


def problems(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.fields["problem"] for one in caplog.records if one.getMessage() == "login_failed"]  # type: ignore[attr-defined]


def test_what_goes_to_the_provider(honest: Fooled, browser_at: BrowserAt) -> None:
    url = honest.server.url
    person = browser_at(url)
    asked, again = honest.begin(person), honest.begin(browser_at(url))
    fixed = {"response_type": "code", "client_id": "offbeat", "scope": "openid", "code_challenge_method": "S256"}
    fixed |= {"redirect_uri": f"{url}/v1/login/callback", "tenant": "7"}  # the last is of the provider's own address
    assert {name: asked[name] for name in fixed} == fixed
    random = ("state", "nonce", "code_challenge")
    assert set(asked) == {*fixed, *random}
    assert len({asked[name] for name in random} | {again[name] for name in random}) == 6
    answer = person.http.get(f"{url}/v1/login")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("offbeat-login=")
    assert cookie.endswith("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax")


def test_a_login_leads_to_the_own_page_alone(honest: Fooled, browser_at: BrowserAt) -> None:
    url, person, elsewhere = honest.server.url, browser_at(honest.server.url), "https://elsewhere.example/"
    names = ("next", "redirect_uri", "return_to", "url", "state")
    for query in "&".join(f"{name}={quote(elsewhere)}" for name in names), "":
        headers = {"Host": "elsewhere.example", "X-Forwarded-Host": "elsewhere.example", "Referer": elsewhere}
        answer = person.http.get(f"{url}/v1/login?{query}", headers=headers)
        assert "elsewhere" not in answer.headers["location"]
    asked = honest.begin(person)
    answer = person.http.get(
        f"{url}/v1/login/callback?code=c&state={asked['state']}&redirect_uri={quote(elsewhere)}", headers=headers
    )
    assert answer.headers["location"] == f"{url}/"


@pytest.mark.parametrize("state", ["", "x", "é", None])
def test_a_wrong_state_is_refused(honest: Fooled, browser_at: BrowserAt, state: str | None) -> None:
    person = browser_at(honest.server.url)
    honest.begin(person)
    query = {"code": "c"} if state is None else {"code": "c", "state": state}
    refused(honest.come_back(person, **query), 400, "This login was not begun in this browser")
    assert honest.provider.asked["/token"] == 0


def test_another_browsers_state_or_cookie_is_refused(honest: Fooled, browser_at: BrowserAt) -> None:
    one, two, none = (browser_at(honest.server.url) for _ in range(3))
    asked = honest.begin(one)
    honest.begin(two)
    for person in (two, none):
        refused(honest.come_back(person, code="c", state=asked["state"]), 400, "This login was not begun")
    changed = browser_at(honest.server.url)
    time_of, _, rest = one.http.cookies["offbeat-login"].partition(".")
    changed.http.cookies.set("offbeat-login", f"{int(time_of) + 600}.{rest}")  # to prolong it
    refused(honest.come_back(changed, code="c", state=asked["state"]), 400, "This login was not begun")


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ({"error": "access_denied"}, "The provider did not log you in (access_denied)"),
        ({"error": "<script>alert(1)</script>"}, "The provider did not log you in (error)"),
        ({"error": "access_denied", "code": "c"}, "The provider did not log you in"),
        ({}, "The provider&#x27;s answer has no code"),
        ({"code": ""}, "The provider&#x27;s answer has no code"),
        ({"code": "c", "iss": "https://elsewhere.example"}, "The answer is not this server&#x27;s provider&#x27;s"),
        ({"code": "c", "iss": ""}, "The answer is not this server&#x27;s provider&#x27;s"),
    ],
)
def test_an_answer_that_is_no_login(honest: Fooled, browser_at: BrowserAt, query: dict[str, str], line: str) -> None:
    person = browser_at(honest.server.url)
    state = honest.begin(person)["state"]
    before = honest.provider.asked["/token"]
    refused(honest.come_back(person, state=state, **query), 400, line)
    assert honest.provider.asked["/token"] == before


def test_who_has_no_role_is_told(tmp_path: Path, honest: Fooled, browser_at: BrowserAt) -> None:
    port = free_port()
    with serving_people(tmp_path / "server", honest.provider.issuer, port, roles={"admin": {"fl-admins"}}) as server:
        fooled, person = Fooled(server, honest.provider), browser_at(server.url)
        refused(fooled.log_in(person), 403, "You are logged in, but none of your groups has a role here")
        for groups in ({"fl-admins": True}, 7, [["fl-admins"]], "fl-admins "):
            fooled.provider.token = lambda nonce, groups=groups: sign(fooled.provider.claims(nonce, groups=groups))
            refused(fooled.log_in(person), 403, "You are logged in, but")
        fooled.provider.token = lambda nonce: sign(fooled.provider.claims(nonce, groups="fl-admins"))
        assert fooled.log_in(person).status_code == 303


def test_groups_of_another_person_are_not_taken(
    honest: Fooled, tmp_path: Path, browser_at: BrowserAt, caplog: pytest.LogCaptureFixture
) -> None:
    provider, port = honest.provider, free_port()
    provider.answers[DESCRIPTION] |= {"userinfo_endpoint": f"{provider.issuer}/me"}
    provider.token = lambda nonce: sign(provider.claims(nonce, groups=None))
    with serving_people(tmp_path / "server", provider.issuer, port) as server:
        fooled, person = Fooled(server, provider), browser_at(server.url)
        provider.answers["/me"] = {"sub": "eve", "groups": ["fl-admins"]}
        refused(fooled.log_in(person), 502, "The provider of logins does not answer as it should")
        assert "another person" in problems(caplog)[0]
        provider.answers["/me"] = {"sub": "ada", "groups": ["fl-admins"], "iss": "https://elsewhere.example"}
        assert fooled.log_in(person).status_code == 303
        assert person.ask("GET", "/v1/tokens").status_code == 200


def test_a_provider_that_names_iss_must_send_it(honest: Fooled, tmp_path: Path, browser_at: BrowserAt) -> None:
    provider = honest.provider
    provider.answers[DESCRIPTION] |= {"authorization_response_iss_parameter_supported": True}
    with serving_people(tmp_path / "server", provider.issuer, free_port()) as server:
        fooled, person = Fooled(server, provider), browser_at(server.url)
        refused(fooled.log_in(person), 400, "The answer is not this server&#x27;s provider&#x27;s")
        state = fooled.begin(person)["state"]
        assert fooled.come_back(person, code="c", state=state, iss=provider.issuer).status_code == 303


HUGE = [KEY.as_dict(private=False)] * 2000
BOMB = gzip.compress(b'{"keys": [' + b" " * 50_000_000 + b"]}")


@pytest.mark.parametrize(
    ("path", "answer", "problem"),
    [
        ("/keys", {"keys": HUGE}, "more than 262144 bytes"),
        ("/keys", {"keys": [{}] * 101}, "has 101 keys"),
        ("/keys", BOMB, "not a JSON object"),
        ("/keys", {"keys": []}, "does not publish"),
        ("/keys", {"keys": [OTHER_KEY.as_dict(private=False)]}, "the ID token is wrong"),
        ("/keys", b"[" * 100_000, "not a JSON object"),
        ("/keys", None, "answers 404"),
        ("/token", b"\xff", "not a JSON object"),
        ("/token", [1], "not a JSON object"),
        ("/token", {"id_token": 7}, "no ID token"),
        ("/token", b"x" * 300_000, "more than 262144 bytes"),
        (DESCRIPTION, {"issuer": "https://elsewhere.example"}, "authorization_endpoint"),
        (DESCRIPTION, {"issuer": "https://elsewhere.example/\n"}, "is of the issuer 'https://elsewhere.example/'"),
        (DESCRIPTION, {"issuer": "https://elsewhere.example"}, "is of the issuer"),
        (DESCRIPTION, {"token_endpoint": "file:///etc/passwd"}, "not an https URL"),
        (DESCRIPTION, {"jwks_uri": "https://\n"}, "not an https URL"),
        (DESCRIPTION, {"userinfo_endpoint": 7}, "userinfo_endpoint"),
        (DESCRIPTION, None, "answers 404: check login.issuer"),
    ],
)
def test_a_provider_that_answers_wrongly_is_one_line_in_the_log(
    honest: Fooled,
    tmp_path: Path,
    browser_at: BrowserAt,
    caplog: pytest.LogCaptureFixture,
    path: str,
    answer: object,
    problem: str,
) -> None:
    provider = honest.provider
    honest.provider.headers = {"Content-Encoding": "gzip"} if answer is BOMB else {}
    if path == DESCRIPTION and isinstance(answer, dict) and problem != "authorization_endpoint":
        answer = provider.answers[path] | answer
    if path != "/token":
        provider.answers[path] = answer
    with serving_people(tmp_path / "server", provider.issuer, free_port()) as server:  # which knows no keys yet
        fooled, person = Fooled(server, provider), browser_at(server.url)
        if path == DESCRIPTION:
            found = person.http.get(f"{server.url}/v1/login")
        else:
            state = fooled.begin(person)["state"]
            provider.answers[path] = answer
            found = fooled.come_back(person, code="c", state=state)
        refused(found, 502, "The provider of logins does not answer as it should")
    (line,) = problems(caplog)
    assert problem in line
    assert "\n" not in line


def test_a_provider_that_sends_elsewhere_is_not_followed(
    honest: Fooled, browser_at: BrowserAt, caplog: pytest.LogCaptureFixture
) -> None:
    person = browser_at(honest.server.url)
    state = honest.begin(person)["state"]
    honest.provider.status, honest.provider.headers = 302, {"Location": f"{honest.provider.issuer}/inside"}
    refused(honest.come_back(person, code="c", state=state), 502, "The provider of logins")
    assert honest.provider.asked["/inside"] == 0
    assert "answers 302" in problems(caplog)[0]


def test_a_slow_provider_is_given_up(
    honest: Fooled, browser_at: BrowserAt, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_fetch, "SECONDS", 0.3)
    person = browser_at(honest.server.url)
    state = honest.begin(person)["state"]
    honest.provider.pause = 0.01  # a byte at a time
    refused(honest.come_back(person, code="c", state=state), 502, "The provider of logins")
    assert "does not answer within 0.3 s" in problems(caplog)[0]


def test_a_provider_that_fails_is_not_asked_by_every_stranger(
    honest: Fooled, tmp_path: Path, browser_at: BrowserAt
) -> None:
    provider = honest.provider
    provider.status = 500
    provider.asked.clear()
    with serving_people(tmp_path / "server", provider.issuer, free_port()) as server:
        person = browser_at(server.url)
        for _ in range(5):
            assert person.http.get(f"{server.url}/v1/login").status_code == 502
    assert provider.asked[DESCRIPTION] == 1


def test_endpoints_and_keys_are_fetched_once(honest: Fooled, tmp_path: Path, browser_at: BrowserAt) -> None:
    provider = honest.provider
    provider.asked.clear()
    with serving_people(tmp_path / "server", provider.issuer, free_port()) as server:
        for _ in range(3):
            assert Fooled(server, provider).log_in(browser_at(server.url)).status_code == 303
    assert (provider.asked[DESCRIPTION], provider.asked["/keys"], provider.asked["/token"]) == (1, 1, 3)


def test_too_many_exchanges_at_once_are_refused(
    honest: Fooled, browser_at: BrowserAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login, "_MOST_AT_ONCE", 1)
    one, two = (browser_at(honest.server.url) for _ in range(2))
    first, second = honest.begin(one)["state"], honest.begin(two)["state"]
    honest.provider.pause = 0.001
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(honest.come_back, one, code="c", state=first)
        end = time.monotonic() + 10
        asked = honest.provider.asked["/token"]
        while honest.provider.asked["/token"] == asked and time.monotonic() < end:
            time.sleep(0.005)
        refused(honest.come_back(two, code="c", state=second), 503, "Too many logins are under way")
        slow.result()
