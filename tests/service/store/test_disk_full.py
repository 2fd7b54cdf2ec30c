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
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch

from tests.e2e.server_process import MODEL, SERVER, free_port
from tests.service.conftest import Peer, body_of
from tests.service.http_client import check_log, kind_of

LENGTH = 2000
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

    def remount(self, options: str) -> bool:
        """Change how the disk is mounted; return whether that can be done."""
        namespace = f"--mount=/proc/{self._launcher.pid}/ns/mnt"
        mount = ["mount", "-o", f"remount,{options}", str(self.folder / "disk")]
        return subprocess.run(["nsenter", namespace, *mount], capture_output=True).returncode == 0

    def close(self) -> None:
        self._launcher.communicate()


class Host:
    """A server on the small disk."""

    def __init__(
        self, machine: Machine, algorithm: str, *, server: str = "", clients: int = 8, checkpoint_seconds: float = 0.2
    ) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.disk = machine.disk
        self.folder = machine.disk / "server"
        self.remount = machine.remount
        self._machine = machine
        self._file = machine.folder / "server.toml"
        self._file.write_text(
            SERVER.format(
                folder="disk/server", port=port, algorithm=algorithm, server=server, length=LENGTH, clients=clients
            ).replace("checkpoint_seconds = 0.2", f"checkpoint_seconds = {checkpoint_seconds}")
        )
        self._process = 0
        self._peers: list[Peer] = []

    def start(self) -> None:
        self._process = self._machine.tell(json.dumps([str(self._file)]))
        until(self._listens)

    def _listens(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def end(self, number: signal.Signals) -> int:
        os.kill(self._process, number)
        self._process = 0
        return self._machine.tell("null")

    def enrol(self) -> Peer:
        answer = self.ask_to_enrol()
        assert answer.status_code == 201, answer.text
        return self.peer(answer.json()["token"])

    def ask_to_enrol(self) -> httpx.Response:
        return self.peer((self.folder / "enrolment-token").read_text().strip()).http.post("/v1/enrol", json={})

    def peer(self, token: str) -> Peer:
        self._peers.append(Peer(self.url, token))
        return self._peers[-1]

    def status(self) -> dict[str, Any]:
        return self.peer((self.folder / "admin-token").read_text().strip()).http.get("/v1/status").json()

    def fill(self) -> None:
        """Leave no page of the disk free."""
        with (self.disk / "filler").open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    def free(self) -> None:
        for filler in self.disk.glob("filler*"):
            filler.unlink()

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


def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


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

        def make(*arguments: Any, **more: Any) -> Host:
            made = Host(machine, *arguments, **more)
            stack.callback(made.close)
            made.start()
            return made

        yield make


def vector(client: int, visit: int) -> torch.Tensor:
    return torch.randn(LENGTH, generator=torch.Generator().manual_seed(1000 * client + visit))


def put(peer: Peer, visit: dict[str, Any], client: int) -> httpx.Response:
    return peer.put(visit, body_of(vector(client, visit["number"])))


FEDBUFF = "algorithm = 'fedbuff'\nbuffer_size = 3\nconcurrency = 8"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_full_disk_refuses_and_loses_nothing_and_all_goes_on(
    number: signal.Signals, host: Make, tmp_path: Path
) -> None:
    server = host(FEDBUFF)
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
    assert httpx.get(f"{server.url}/readyz").status_code == 503
    assert httpx.get(f"{server.url}/healthz").status_code == 200
    time.sleep(1.0)  # checkpoints are due within this second
    assert httpx.get(f"{server.url}/healthz").status_code == 200

    server.free()
    until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
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


def test_enrolling_while_the_disk_is_full_takes_no_places(host: Make) -> None:
    server = host(FEDBUFF, clients=3)
    server.enrol()
    server.fill()
    for _ in range(5):
        answer = server.ask_to_enrol()
        assert answer.status_code == 503, answer.text
    server.free()
    until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
    assert server.ask_to_enrol().status_code == 201


def test_a_disk_that_is_full_in_the_middle_of_a_large_upload_keeps_what_it_has(host: Make, tmp_path: Path) -> None:
    server = host(FEDBUFF)
    peer = server.enrol()
    visit = peer.check_in()
    body = body_of(vector(0, 0))
    head = peer.head(visit, body)
    assert peer.put(visit, body[:100], head=head).status_code == 202
    server.fill()
    answer = peer.put(visit, body, offset=100, head=head)
    assert kind_of(answer, 503) == "no-space"
    server.free()
    until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
    there = peer.http.get("/v1/uploads/0").json()["offset"]
    assert (server.folder / "partial" / "0-0").read_bytes() == body[:there]
    assert peer.put(visit, body, offset=there, head=head).json()["receipt"]["counted"]
    server.check(tmp_path / "copy")


def test_a_lease_that_lapses_while_the_disk_is_full_does_not_end_the_server(host: Make) -> None:
    server = host("algorithm = 'fedavg'\ncohort = 2", server="lease_seconds = 1.0")
    peers = [server.enrol() for _ in range(3)]
    visit, _ = peers[0].check_in(), peers[1].check_in()
    assert put(peers[0], visit, 0).json()["receipt"]["counted"]
    waits = {"wait_seconds": 3.0}
    # The other's lease lapses while this one waits for the next round, whose model cannot be written.
    with httpx.Client(timeout=30, headers=peers[2].http.headers) as http:
        server.fill()
        answer = http.post(f"{server.url}/v1/checkin", json=waits)
    assert answer.status_code in (200, 503)
    time.sleep(0.5)
    assert httpx.get(f"{server.url}/healthz").status_code == 200
    server.free()
    until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
    assert peers[2].check_in()["version"] == 1


def test_a_disk_that_has_room_but_for_no_new_file_is_full(host: Make, tmp_path: Path) -> None:
    server = host(FEDBUFF)
    peers = [server.enrol() for _ in range(3)]
    visits = [peer.check_in() for peer in peers]
    if not server.remount("nr_inodes=64"):
        pytest.skip("this machine does not let one change the number of files")
    time.sleep(1.0)  # until the checkpoint of these visits is made: it removes the file of the one before
    with suppress(OSError):
        for number in count():
            (server.disk / f"filler-{number}").touch()
    answers = [put(peer, visit, client) for client, (peer, visit) in enumerate(zip(peers, visits, strict=True))]
    assert {answer.status_code for answer in answers} <= {200, 503}
    assert 503 in {answer.status_code for answer in answers}
    time.sleep(0.5)
    server.free()
    until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
    for client, (peer, visit) in enumerate(zip(peers, visits, strict=True)):
        assert put(peer, visit, client).json()["receipt"]["counted"]
    assert server.status()["version"] == 1
    server.check(tmp_path / "copy")


def test_a_disk_filled_by_the_servers_own_segments_recovers_by_itself(host: Make, tmp_path: Path) -> None:
    server = host(FEDBUFF, checkpoint_seconds=1e6)
    peers = [server.enrol() for _ in range(3)]
    refused = counted = 0
    # Each update and each version takes 8 kB of the disk's 2 MB, and no checkpoint is due.
    for number in range(400):
        peer = peers[number % 3]
        answer = peer.http.post("/v1/checkin", json={})
        if answer.status_code == 200:
            answer = put(peer, answer.json()["visit"], number % 3)
        if answer.status_code == 200:
            counted += answer.json()["receipt"]["counted"]
            continue
        assert kind_of(answer, 503) == "no-space"
        refused += 1
        ready = httpx.get(f"{server.url}/readyz")
        if ready.status_code == 503:
            assert ready.text.strip()
        until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
    assert refused > 0
    assert counted > 300
    # What was refused while the log could not be written may have been taken in after all.
    assert counted <= server.status()["counted"] <= counted + refused
    server.check(tmp_path / "copy")
