"""Logins through a real, certified provider."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from offbeat_core.serving.certificates import make_certificates

from tests.service.conftest import Served, running
from tests.service.http_client import kind_of
from tests.service.login.conftest import BrowserAt, serving_people, with_real_provider
from tests.service.login.real_provider import Person, free_port, running_provider


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory):
    """A server with a public client, and groups at the provider's endpoint for claims."""
    with with_real_provider(tmp_path_factory.mktemp("people") / "server") as server:
        yield server


def audit(server: Served) -> list[dict]:
    with closing(sqlite3.connect(server.folder / "offbeat.sqlite")) as database:
        rows = database.execute("SELECT entry FROM log WHERE entry IS NOT NULL ORDER BY number")
        return [json.loads(entry) for (entry,) in rows]


def may(person: Person) -> list[int]:
    """Return the statuses of a viewer's, an operator's and an admin's request."""
    requests = [("GET", "/v1/status"), ("POST", "/v1/admin/resume"), ("GET", "/v1/tokens")]
    return [person.ask(*request).status_code for request in requests]


@pytest.mark.parametrize(
    ("name", "statuses"), [("ada", [200, 200, 200]), ("olga", [200, 200, 403]), ("victor", [200, 403, 403])]
)
def test_the_role_comes_from_the_groups(served: Served, name: str, statuses: list[int], browser_at: BrowserAt) -> None:
    person = browser_at(served.url)
    assert may(person) == [401, 401, 401]
    answer = person.log_in(name)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{served.url}/")
    assert may(person) == statuses


def test_the_audit_log_names_the_person(served: Served, browser_at: BrowserAt) -> None:
    person = browser_at(served.url)
    person.log_in("olga")
    assert person.ask("POST", "/v1/admin/pause").status_code == 200
    assert person.ask("POST", "/v1/logout").status_code == 204
    facts = [(entry["kind"], entry.get("person"), entry.get("role"), entry.get("by")) for entry in audit(served)[-3:]]
    assert facts == [
        ("person logged in", "sub:olga", "operator", None),
        ("run paused", None, None, "sub:olga"),
        ("person logged out", "sub:olga", None, None),
    ]
    served.admin.http.post("/v1/admin/resume")


def test_the_cookie_alone_may_do_nothing(served: Served, browser_at: BrowserAt) -> None:
    person = browser_at(served.url)
    person.log_in("ada")
    for method, path in (("GET", "/v1/status"), ("POST", "/v1/admin/pause"), ("POST", "/v1/logout")):
        assert kind_of(person.http.request(method, served.url + path), 401) == "no-token"
    assert may(person) == [200, 200, 200]


def test_who_logs_out_is_out(served: Served, browser_at: BrowserAt) -> None:
    person, other = browser_at(served.url), browser_at(served.url)
    person.log_in("ada")
    other.log_in("ada")
    (token,) = (one.value for one in person.http.cookies.jar if one.name == "offbeat")
    assert person.ask("POST", "/v1/logout").status_code == 204
    assert may(person) == [401, 401, 401]
    person.http.cookies.set("offbeat", token, domain="127.0.0.1", path="/")  # a copy of it is worth nothing
    assert kind_of(person.ask("GET", "/v1/status"), 401) == "unknown-token"
    assert may(other) == [200, 200, 200]


def test_an_admin_ends_a_session(served: Served, browser_at: BrowserAt) -> None:
    person = browser_at(served.url)
    person.log_in("victor")
    sessions = [one for one in served.admin.http.get("/v1/tokens").json()["tokens"] if one["name"] == "sub:victor"]
    assert [(one["kind"], one["state"]) for one in sessions] == [("viewer", "valid")] * len(sessions)
    for one in sessions:
        assert served.admin.http.delete(f"/v1/tokens/{one['id']}").status_code == 204
    assert may(person) == [401, 401, 401]


def test_a_code_is_good_once_and_in_its_browser(served: Served, browser_at: BrowserAt) -> None:
    person, thief = browser_at(served.url), browser_at(served.url)
    callback = person.until_callback("ada")
    assert "not begun in this browser" in thief.http.get(callback).text
    thief.follow(f"{served.url}/v1/login")  # with a cookie of another login
    assert "not begun in this browser" in thief.http.get(callback).text
    cookies = dict(person.http.cookies)
    assert person.http.get(callback).status_code == 303
    for name, value in cookies.items():
        person.http.cookies.set(name, value, domain="127.0.0.1", path="/")
    again = person.http.get(callback)
    assert again.status_code == 400
    assert "not a second time" in again.text


@pytest.mark.parametrize("is_in_token", [True, False])
def test_with_a_secret_and_over_tls(
    tmp_path: Path, is_in_token: bool, monkeypatch: pytest.MonkeyPatch, browser_at: BrowserAt
) -> None:
    certificates = make_certificates(tmp_path / "tls", ["127.0.0.1"])
    settings = {"secret": "s:e cret%", "client_secret": "s:e cret%", "url": None, "is_in_token": is_in_token}
    with with_real_provider(tmp_path / "server", certificates=certificates, **settings) as server:
        person = browser_at(server.url)
        answer = person.log_in("olga")
        assert answer.headers["location"] == f"{server.url}/"
        session = answer.headers.get_list("set-cookie")[0]
        assert session.startswith("__Host-offbeat=obs_")
        assert session.partition(";")[2] == " Path=/; Max-Age=28800; HttpOnly; SameSite=Lax; Secure"
        assert may(person) == [200, 200, 403]
        token = session.partition("=")[2].partition(";")[0]
        stranger = browser_at(server.url)
        stranger.http.cookies.set("offbeat", token, domain="127.0.0.1", path="/")  # which http:// may set
        assert may(stranger) == [401, 401, 401]


def test_a_wrong_secret_is_the_operators_to_mend(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, browser_at: BrowserAt
) -> None:
    with with_real_provider(tmp_path / "server", secret="right", client_secret="wrong") as server:
        answer = browser_at(server.url).log_in("ada")
        assert answer.status_code == 502
        assert "ask the server’s operator" in answer.text
    failures = [record for record in caplog.records if record.getMessage() == "login_failed"]
    assert [record.fields["problem"].endswith("answers 401 invalid_client") for record in failures] == [True]


def test_new_keys_of_the_provider_are_fetched(tmp_path: Path, browser_at: BrowserAt) -> None:
    port, own = free_port(), free_port()
    redirect, issuer = f"http://127.0.0.1:{own}/v1/login/callback", f"http://127.0.0.1:{port}"
    with serving_people(tmp_path / "server", issuer, own) as server:
        for _ in range(2):  # each start of the provider makes another key
            with running_provider(redirect, port=port):
                assert browser_at(server.url).log_in("ada").status_code == 303


def test_a_restart_logs_out(tmp_path: Path, browser_at: BrowserAt) -> None:
    own = free_port()
    with running_provider(f"http://127.0.0.1:{own}/v1/login/callback") as issuer:
        with serving_people(tmp_path / "server", issuer, own) as server:
            person = browser_at(server.url)
            person.log_in("victor")
            begun = browser_at(server.url)
            callback = begun.until_callback("ada")
            assert may(person) == [200, 403, 403]
        with serving_people(tmp_path / "server", issuer, own) as server:
            assert kind_of(person.ask("GET", "/v1/status"), 401) == "unknown-token"
            assert "log in again" in person.ask("GET", "/v1/status").json()["detail"]
            assert "not begun in this browser" in begun.http.get(callback).text


def test_through_fronts(tmp_path: Path, browser_at: BrowserAt) -> None:
    with with_real_provider(tmp_path / "server", front_processes=2) as server:
        person = browser_at(server.url)
        assert person.log_in("olga").headers["location"] == f"{server.url}/"
        assert may(person) == [200, 200, 403]
        assert kind_of(person.http.post(f"{server.url}/v1/admin/pause"), 401) == "no-token"
        assert person.ask("GET", "/v1/admin/model").status_code == 200  # which a front serves itself
        assert person.ask("POST", "/v1/logout").status_code == 204
        assert may(person) == [401, 401, 401]


def test_without_login_there_are_no_such_routes(tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        assert kind_of(server.peer(None).http.get("/v1/login"), 404) == "not-found"
        assert "href" not in server.peer(None).http.get("/").text.partition('id="log-in"')[2][:40]
