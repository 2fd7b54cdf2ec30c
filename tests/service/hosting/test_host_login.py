"""People who log in to a server of several runs, through the false provider."""

from contextlib import contextmanager

import pytest

from offbeat.service.http.session_cookie import PAGE_HEADER
from offbeat.service.login.login_settings import LoginSettings
from tests.service.hosting.conftest import hosting
from tests.service.http_client import kind_of
from tests.service.login.conftest import ROLES, Fooled, browser_at  # noqa: F401
from tests.service.login.false_provider import false_provider
from tests.service.login.real_provider import free_port


@contextmanager
def trusting(folder):
    """Run a server of several runs, and the false provider that it trusts."""
    port = free_port()
    with false_provider() as provider:
        login = LoginSettings(provider.issuer, client_id="offbeat", roles=ROLES, url=f"http://127.0.0.1:{port}")
        with hosting(folder, login=login, port=port) as server:
            yield Fooled(server, provider)


@pytest.fixture
def fooled(tmp_path):
    with trusting(tmp_path / "server") as found:
        for name in ("one", "two"):
            found.server.create(name, algorithm="fedasync")
        yield found


def test_who_has_logged_in_is_so_in_all_runs_until_the_logout(fooled, browser_at):  # noqa: F811
    person, url = browser_at(fooled.server.url), fooled.server.url
    answer = fooled.log_in(person)
    assert (answer.status_code, answer.headers["location"]) == (303, f"{url}/")
    assert "Path=/;" in answer.headers["set-cookie"]
    person.http.headers[PAGE_HEADER] = "1"
    assert person.http.get(f"{url}/v1/admin/live").json()["role"] == "operator"
    for run in ("one", "two"):
        assert person.http.get(f"{url}/runs/{run}/v1/admin/live").json()["role"] == "operator"
        assert person.http.post(f"{url}/runs/{run}/v1/admin/pause").status_code == 200
        assert kind_of(person.http.get(f"{url}/runs/{run}/v1/tokens"), 403) == "foreign-token"
    assert kind_of(person.http.get(f"{url}/runs/none/v1/status"), 404) == "no-such-run"
    del person.http.headers[PAGE_HEADER]  # as a request from another site's page
    assert kind_of(person.http.get(f"{url}/runs/one/v1/status"), 401) == "no-token"
    person.http.headers[PAGE_HEADER] = "1"
    (session,) = [
        one for one in fooled.server.admin.http.get("/v1/tokens").json()["tokens"] if one["name"] == "sub:ada"
    ]
    assert session["kind"] == "operator"
    token = person.http.cookies["offbeat"]
    assert person.http.post(f"{url}/v1/logout").status_code == 204
    assert kind_of(fooled.server.peer(token).http.get("/v1/status"), 401) == "unknown-token"
    assert kind_of(fooled.server.peer(token, "one").http.get("/v1/status"), 401) == "unknown-token"


def test_all_pages_link_to_the_login_and_a_failed_one_is_counted(fooled, browser_at):  # noqa: F811
    person, url = browser_at(fooled.server.url), fooled.server.url
    for path in ("/", "/runs/one/", "/runs/none/"):
        assert f'<a id="log-in" href="{url}/v1/login">' in person.http.get(f"{url}{path}").text
    assert fooled.come_back(person, code="c", state="wrong").status_code == 400
    assert 'offbeat_refusals_total{kind="login-failed"} 1.0' in fooled.server.admin.http.get("/metrics").text


def test_a_server_without_logins_has_none(server):
    assert '<a id="log-in" hidden>' in server.admin.http.get("/").text
    assert kind_of(server.admin.http.get("/v1/login"), 404) == "not-found"
