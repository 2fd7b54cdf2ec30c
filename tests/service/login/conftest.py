"""Servers whose people log in, and Python's own providers."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from offbeat.service.login.login_settings import LoginSettings
from tests.service.conftest import Served, running
from tests.service.login.false_provider import FalseProvider, false_provider
from tests.service.login.real_provider import Person, free_port, running_provider

BrowserAt = Callable[[str], Person]
ROLES = {"admin": {"fl-admins"}, "operator": {"fl-ops"}, "viewer": {"*"}}


class Fooled(NamedTuple):
    """A server, and the false provider that it trusts."""

    server: Served
    provider: FalseProvider

    def begin(self, person: Person) -> dict[str, str]:
        """Begin a login; return what the server asks the provider, which now knows the nonce."""
        answer = person.http.get(f"{self.server.url}/v1/login")
        assert answer.status_code == 303, answer.text
        asked = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
        self.provider.will_answer(asked["nonce"])
        return asked

    def come_back(self, person: Person, **query: str) -> httpx.Response:
        """Call the callback."""
        return person.http.get(f"{self.server.url}/v1/login/callback", params=query)

    def log_in(self, person: Person) -> httpx.Response:
        """Log in; return the answer to the callback."""
        return self.come_back(person, code="c", state=self.begin(person)["state"])


@contextmanager
def serving_people(folder: Path, issuer: str, port: int, **changes: Any) -> Generator[Served]:
    """Run a server at this port whose people log in through a provider."""
    login = {"client_id": "offbeat", "roles": ROLES, "url": f"http://127.0.0.1:{port}"}
    login |= {name: changes.pop(name) for name in LoginSettings.__dataclass_fields__ if name in changes}
    with running(folder, port=port, login=LoginSettings(issuer, **login), **changes) as server:
        yield server


@contextmanager
def with_real_provider(folder: Path, **changes: Any) -> Generator[Served]:
    """Run a server with the real provider, which sends groups for the scope of this name."""
    port = free_port()
    scheme = "https" if changes.get("certificates") else "http"
    provider = {name: changes.pop(name) for name in ("secret", "is_in_token") if name in changes}
    with (
        running_provider(f"{scheme}://127.0.0.1:{port}/v1/login/callback", **provider) as issuer,
        serving_people(folder, issuer, port, **{"scopes": ("groups",), **changes}) as server,
    ):
        yield server


@pytest.fixture
def browser_at() -> Generator[Callable[[str], Person]]:
    """Makes people's browsers, for the server with this URL."""
    with ExitStack() as stack:

        def make(url: str) -> Person:
            person = Person(url)
            stack.callback(person.http.close)
            return person

        yield make


@pytest.fixture(scope="module")
def fooled(tmp_path_factory: pytest.TempPathFactory) -> Generator[Fooled]:
    """A server with a false provider, for all tests of a module."""
    with false_provider() as provider:
        port = free_port()
        with serving_people(tmp_path_factory.mktemp("people") / "server", provider.issuer, port) as server:
            yield Fooled(server, provider)


@pytest.fixture
def honest(fooled: Fooled) -> Fooled:
    """The server without sessions, with a provider that has just become honest."""
    fooled.provider.reset()
    fooled.server.service.accounts.sessions.accounts.clear()
    return fooled
