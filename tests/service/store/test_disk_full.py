"""A real server on a disk that is really full.

A refused client gets a refusal, and nothing that was acknowledged is lost.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from tests.e2e.server_process import MODEL, SERVER, free_port, until
from tests.service.conftest import Peer, body_of
from tests.service.http_client import check_log, kind_of

LENGTH = 2000
FEDBUFF = "algorithm = 'fedbuff'\nbuffer_size = 3\nconcurrency = 8"
LAUNCHER = Path(__file__).parents[2] / "e2e" / "server_launcher.py"
IN_A_NAMESPACE = 'mount -t tmpfs -o size=2m tmpfs disk || exit 77; exec "$@"'


class Machine:
    """A namespace with a small disk, in which servers are started and killed."""

    def __init__(self, folder: Path) -> None:
        (folder / "own_model.py").write_text(MODEL)
        (folder / "disk").mkdir()
        with (folder / "errors").open("w") as errors:
            self._launcher = subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", IN_A_NAMESPACE, "sh", sys.executable, str(LAUNCHER)],
                cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip
        self.folder = folder
        # As others see it: the disk is mounted for the launcher and its children only.
        self.disk = Path(f"/proc/{self._launcher.pid}/root{folder / 'disk'}")

    def tell(self, line: str) -> int:
        assert self._launcher.stdin is not None
        assert self._launcher.stdout is not None
        self._launcher.stdin.write(line + "\n")
        self._launcher.stdin.flush()
        said = self._launcher.stdout.readline()
        if not said and self._launcher.wait() == 77:
            pytest.skip("this machine lets nobody make a small disk")
        return int(said)

    def close(self) -> None:
        self._launcher.communicate()


class Host:
    """A server of FedBuff on the small disk."""

    def __init__(self, machine: Machine, checkpoint_seconds: float = 0.2) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.folder = machine.disk / "server"
        self._filler = machine.disk / "filler"
        self._machine = machine
        self._file = machine.folder / "server.toml"
        values = {"folder": "disk/server", "port": port, "algorithm": FEDBUFF, "length": LENGTH, "clients": 8}
        text = SERVER.format(server="", **values)
        self._file.write_text(text.replace("checkpoint_seconds = 0.2", f"checkpoint_seconds = {checkpoint_seconds}"))
        self._process = 0
        self._peers: list[Peer] = []

    def start(self) -> None:
        self._process = self._machine.tell(json.dumps([str(self._file)]))
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            with suppress(httpx.TransportError):
                return self.get("readyz").status_code == 200
            return False

        until(is_ready)

    def get(self, page: str) -> httpx.Response:
        return httpx.get(f"{self.url}/{page}")

    def end(self, number: signal.Signals) -> int:
        os.kill(self._process, number)
        self._process = 0
        return self._machine.tell("null")

    def enrol(self) -> Peer:
        answer = self._peer(self._token("enrolment")).http.post("/v1/enrol", json={})
        assert answer.status_code == 201, answer.text
        return self._peer(answer.json()["token"])

    def _token(self, kind: str) -> str:
        return (self.folder / f"{kind}-token").read_text().strip()

    def _peer(self, token: str) -> Peer:
        self._peers.append(Peer(self.url, token))
        return self._peers[-1]

    def status(self) -> dict[str, Any]:
        return self._peer(self._token("admin")).http.get("/v1/status").json()

    def fill(self) -> None:
        """Leave no page of the disk free."""
        with self._filler.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        self._filler.unlink(missing_ok=True)

    def check(self, copy: Path) -> None:
        """Check that what the log refers to is there."""
        shutil.copytree(self.folder, copy)  # SQLite opens nothing in /proc
        check_log(copy)

    def close(self) -> None:
        for peer in self._peers:
            peer.http.close()
        self.free()
        if self._process:
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGKILL)
            self._machine.tell("null")
        shutil.rmtree(self.folder)


Make = Callable[..., Host]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Generator[Machine]:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("only root can make a small disk")
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody make a small disk")
    with closing(Machine(tmp_path_factory.mktemp("machine"))) as made:
        yield made


@pytest.fixture
def host(machine: Machine) -> Generator[Make]:
    with ExitStack() as stack:

        def make(**settings: Any) -> Host:
            made = stack.enter_context(closing(Host(machine, **settings)))
            made.start()
            return made

        yield make


def put(peer: Peer, visit: dict[str, Any], client: int) -> httpx.Response:
    seed = 1000 * client + visit["number"]
    return peer.put(visit, body_of(torch.randn(LENGTH, generator=torch.Generator().manual_seed(seed))))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_full_disk_refuses_uploads_and_loses_nothing(number: signal.Signals, host: Make, tmp_path: Path) -> None:
    server = host()
    peers = [server.enrol() for _ in range(4)]
    visits = [peer.check_in() for peer in peers]
    told = [put(peers[client], visits[client], client) for client in range(2)]
    assert [answer.json()["receipt"]["counted"] for answer in told] == [True, True]

    server.fill()
    for client in (2, 3):
        for _ in range(2):
            answer = put(peers[client], visits[client], client)
            assert kind_of(answer, 503) == "no-space"
            assert answer.headers["retry-after"]
    assert kind_of(peers[0].http.post("/v1/checkin", json={}), 503) == "no-space"
    assert kind_of(peers[1].http.post("/v1/token"), 503) == "no-space"
    assert server.get("readyz").status_code == 503
    assert server.get("healthz").status_code == 200
    time.sleep(1.0)  # checkpoints are due within this second
    assert server.get("healthz").status_code == 200

    server.free()
    server.wait_until_ready()
    for client in (2, 3):
        answer = put(peers[client], visits[client], client)
        assert answer.status_code == 200, answer.text
        assert answer.json()["receipt"]["counted"]
    status = server.status()
    assert (status["counted"], status["version"]) == (4, 1)
    server.check(tmp_path / "copy")

    server.fill()
    assert peers[2].http.post("/v1/checkin", json={}).status_code in (200, 503)
    assert peers[3].http.post("/v1/checkin", json={}).status_code in (200, 503)
    server.end(number)
    server.free()
    server.start()
    status = server.status()
    assert (status["counted"], status["version"]) == (4, 1)
    for client, answer in enumerate(told):
        assert put(peers[client], visits[client], client).json() == answer.json()
    visit = peers[0].check_in()
    assert put(peers[0], visit, 0).json()["receipt"]["counted"]
    server.check(tmp_path / "copy 2")


def test_a_disk_filled_by_the_servers_own_segments_recovers_by_itself(host: Make, tmp_path: Path) -> None:
    server = host(checkpoint_seconds=1e6)
    peers = [server.enrol() for _ in range(3)]
    refused = counted = 0
    # Each update and each version takes 8 kB of the disk's 2 MB, and no checkpoint is due.
    for number in range(300):
        peer = peers[number % 3]
        answer = peer.http.post("/v1/checkin", json={})
        if answer.status_code == 200:
            answer = put(peer, answer.json()["visit"], number % 3)
        if answer.status_code == 200:
            counted += answer.json()["receipt"]["counted"]
            continue
        assert kind_of(answer, 503) == "no-space"
        refused += 1
        ready = server.get("readyz")
        if ready.status_code == 503:
            assert ready.text.strip()
        server.wait_until_ready()
    assert refused > 0
    assert counted > 200
    # What was refused while the log could not be written may have been taken in after all.
    assert counted <= server.status()["counted"] <= counted + refused
    server.check(tmp_path / "copy")
