"""Servers with fronts of their own, one of which stands by; and what their logs and answers show of secrets."""

import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.e2e.balancer import Balancer
from tests.e2e.flapping import FEDBUFF, Flapping, acknowledged
from tests.e2e.server_process import Launcher, until
from tests.e2e.test_front_children import Fronted, exists
from tests.e2e.test_take_over import CLIENTS, STORE, check_nothing_lost, database, is_ready
from tests.postgres import postgres as postgres

__all__ = ["database"]

LENGTH = 20_000  # large updates
SECRETS = {"PGPASSWORD": "a-password-of-the-log", "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-store"}


def answers(server: Fronted) -> str:
    """Return what an admin can read of a server."""
    headers = {"Authorization": f"Bearer {server.token('admin')}"}
    with httpx.Client(base_url=server.url, headers=headers, verify=False) as http:
        found = [http.get(path) for path in ("/v1/status", "/metrics", "/v1/tokens", "/v1/admin/clients", "/", "/x")]
        found.append(http.get("/v1/status", headers={"Authorization": f"Bearer {SECRETS['PGPASSWORD']}"}))
    assert [answer.status_code for answer in found] == [200] * 5 + [404, 401]
    return "".join(answer.text for answer in found)


def wrong_log(file: Path) -> Path:
    """Return a copy of a server's file with a log that does not answer."""
    wrong = file.with_name("wrong.toml")
    lines = [
        'log = "postgresql://offbeat@127.0.0.1:1/x"' if "log = " in line else line
        for line in file.read_text().splitlines()
    ]
    wrong.write_text("\n".join(lines))
    return wrong


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks for processes in /proc")
def test_a_standby_with_fronts_takes_over_and_nothing_shows_a_secret(
    database: str,
    launcher: Launcher,
    tmp_path: Path,
    offbeat: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = threading.Event()
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with ExitStack() as stack:
        store = STORE.format(log=database, blobs=f"file://{tmp_path}/blobs")
        servers: list[Fronted] = []
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            server = Fronted(launcher, tmp_path / name, FEDBUFF, LENGTH, CLIENTS, extra=store)
            servers.append(stack.enter_context(server))
        one, two = servers
        (two.file.parent / "own_model.py").unlink()
        (two.file.parent / "own_model.py").symlink_to(one.file.parent / "own_model.py")
        one.start(environment=SECRETS)
        until(lambda: is_ready(one.url))
        two.start(environment=SECRETS)
        until(lambda: two.log.exists() and "stands_by" in two.log.read_text())
        assert two.fronts() == []  # which would have nobody to ask
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{two.url}/healthz", verify=False)
        balancer = stack.enter_context(Balancer([server.port for server in servers]))
        clients = [Flapping(balancer.url, one.token("enrolment"), LENGTH, stop, seed) for seed in range(CLIENTS)]
        for client in clients:
            client.start()
        try:
            until(lambda: acknowledged(clients) > 10)
            fronts = one.fronts()
            one.kill(signal.SIGKILL)
            until(lambda: is_ready(two.url))
            until(lambda: len(two.fronts()) == 2)
            until(lambda: not any(map(exists, fronts)))
            before = acknowledged(clients)
            until(lambda: acknowledged(clients) > before + 10)
            said = answers(two)
            for file in (two.file, wrong_log(two.file)):
                said += "".join(map(str, offbeat("server", "status", str(file))))
        finally:
            stop.set()
            for client in clients:
                client.join(30)
        assert two.kill(signal.SIGTERM) == 0
    check_nothing_lost(clients, two, database, LENGTH)
    secrets = {*SECRETS.values(), *(client._token for client in clients)}
    secrets |= {server.token(kind) for server in servers for kind in ("admin", "enrolment")}
    assert len(secrets) == 2 + CLIENTS + 4
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name not in ("admin-token", "enrolment-token"):
            said += path.read_bytes().decode("latin-1")
    assert [secret for secret in secrets if secret in said] == []
    for server in servers:
        assert "Traceback" not in server.log.read_text()
