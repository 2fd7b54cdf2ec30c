"""The real provider ``oidc-provider`` from npm, and a person's browser."""

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

ROOT = Path(__file__).parents[3]
_INSTALLED = ROOT / "build" / "oidc-provider"
_SCRIPT = Path(__file__).with_name("provider.mjs")

GROUPS = {"ada": ["fl-admins", "staff"], "olga": ["fl-ops"], "victor": []}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@contextmanager
def running_provider(redirect_uri: str, *, port: int = 0, **changes: Any) -> Generator[str]:
    """Run the provider; yield its issuer."""
    node = shutil.which("node")
    if node is None or not (_INSTALLED / "node_modules" / "oidc-provider").exists():
        pytest.skip("Node.js or oidc-provider is missing: make oidc-provider")
    asked = {"port": port, "redirect_uris": [redirect_uri], "groups": GROUPS, "secret": None} | changes
    with subprocess.Popen(
        [node, _SCRIPT, json.dumps(asked)],
        cwd=_INSTALLED,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            issuer = process.stdout.readline().strip()
            assert issuer.startswith("http://127.0.0.1:"), "oidc-provider does not start"
            yield issuer
        finally:
            process.kill()


class Person:
    """A person's browser, as far as a login needs one."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = httpx.Client(timeout=30.0, verify=False)

    def follow(self, url: str, until: str = "") -> httpx.Response:
        """Get an address and follow redirects; stop before one to an address that begins with ``until``."""
        answer = self.http.get(url)
        while answer.is_redirect:
            target = urljoin(str(answer.url), answer.headers["location"])
            if until and target.startswith(until):
                return answer
            answer = self.http.get(target)
        return answer

    def until_callback(self, name: str, begin: str | None = None) -> str:
        """Begin a login, log in to the provider by name, and return the callback's address without getting it."""
        callback = f"{self.url}/v1/login/callback"
        form = self.follow(begin or f"{self.url}/v1/login", callback)
        if form.is_redirect:  # logged in there already
            return form.headers["location"]
        action = re.search(r'action="([^"]+)"', form.text)
        assert action is not None, form.text
        answer = self.http.post(action[1], data={"prompt": "login", "login": name, "password": "any"})
        last = self.follow(urljoin(str(answer.url), answer.headers["location"]), callback)
        return last.headers["location"]

    def log_in(self, name: str) -> httpx.Response:
        """Log in; return the answer to the callback."""
        return self.http.get(self.until_callback(name))

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Make a request as the live page does."""
        return self.http.request(method, self.url + path, headers={"Offbeat-Page": "1"}, **options)
