"""A real server on a disk that is really full."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import torch

from tests.e2e.server_process import Launcher, Server, until
from tests.service.conftest import Peer, body_of
from tests.service.http_client import check_log, kind_of

LENGTH = 14_000  # the update is small enough for the log
FEDBUFF = "algorithm = 'fedbuff'\nbuffer_size = 3\nconcurrency = 8"
IN_A_NAMESPACE = 'mount -t tmpfs -o size=24m tmpfs "$1" || exit 77; shift; exec "$@"'


class SmallDisk(Launcher):
    """Starts servers of which a folder, ``place``, is a disk of 24 MB, which only they see."""

    def __init__(self, folder: Path, place: str = "server") -> None:
        super().__init__()
        self.folder = folder
        self._place = place

    def __enter__(self) -> Self:
        (self.folder / self._place).mkdir(parents=True)
        self._process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", IN_A_NAMESPACE, "sh", self._place, *self._command],
            cwd=self.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        return self

    def tell(self, request: Any) -> Any:
        with suppress(ValueError):
            return super().tell(request)
        pytest.skip("this machine lets nobody make a small disk")

    @property
    def disk(self) -> Path:
        return Path(f"/proc/{self._process.pid}/root{self.folder}/{self._place}")


def fill(disk: Path) -> None:
    """Leave no page of the disk free."""
    with (disk / "filler").open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def is_ready(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz", verify=False).status_code == 200
    return False


pytestmark = pytest.mark.skipif(
    shutil.which("unshare") is None or os.geteuid() != 0, reason="only root can make a small disk"
)


@pytest.fixture(scope="module")
def launched(tmp_path_factory: pytest.TempPathFactory) -> Generator[SmallDisk]:
    with SmallDisk(tmp_path_factory.mktemp("small")) as launcher:
        yield launcher


@pytest.fixture
def small_disk(launched: SmallDisk) -> SmallDisk:
    """Starts servers on a small disk that is empty."""
    with suppress(OSError):  # then there is no small disk, and the server's start is skipped
        for path in launched.disk.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return launched


def test_a_full_disk_refuses_uploads_and_loses_nothing(small_disk: SmallDisk, tmp_path: Path) -> None:
    def put(client: int, number: int = 0) -> httpx.Response:
        vector = torch.randn(LENGTH, generator=torch.Generator().manual_seed(1000 * client + number))
        return peers[client].put(visits[client], body_of(vector))

    def check(name: str) -> None:
        assert server.version() == 1
        shutil.copytree(disk, tmp_path / name)  # SQLite opens nothing in /proc
        check_log(tmp_path / name)

    with (
        Server(small_disk, small_disk.folder, FEDBUFF, LENGTH, clients=8) as server,
        ExitStack() as stack,
    ):
        disk = server.folder = small_disk.disk
        server.start()
        enrols = stack.enter_context(closing(Peer(server.url, server.token("enrolment")).http))
        until(lambda: is_ready(server.url))
        tokens = [enrols.post("/v1/enrol", json={}).json()["token"] for _ in range(4)]
        peers = [Peer(server.url, token) for token in tokens]
        for peer in peers:
            stack.enter_context(closing(peer.http))
        visits = [peer.check_in() for peer in peers]
        answers = [put(client) for client in range(2)]
        assert [answer.json()["receipt"]["counted"] for answer in answers] == [True, True]

        fill(disk)
        for client in (2, 3, 2, 3):
            answer = put(client)
            assert kind_of(answer, 503) == "no-space"
            assert answer.headers["retry-after"]
            fill(disk)  # also what the server has released, or it would go on
        assert kind_of(peers[0].http.post("/v1/checkin", json={}), 503) == "no-space"
        assert kind_of(peers[1].http.post("/v1/token"), 503) == "no-space"
        assert kind_of(enrols.post("/v1/enrol", json={}), 503) == "no-space"
        assert httpx.get(f"{server.url}/readyz", verify=False).status_code == 503
        time.sleep(2.0)  # checkpoints are due, and leases lapse, within this time
        assert httpx.get(f"{server.url}/healthz", verify=False).status_code == 200

        (disk / "filler").unlink()
        until(lambda: is_ready(server.url))
        for client in (2, 3):
            assert put(client).json()["receipt"]["counted"]
        check("copy")

        fill(disk)
        for client in (2, 3):
            assert peers[client].http.post("/v1/checkin", json={}).status_code in (200, 503)
        server.kill(signal.SIGKILL)
        (disk / "filler").unlink()
        server.start()
        until(lambda: is_ready(server.url))
        for client, answer in enumerate(answers):
            assert put(client).json()["receipt"] == answer.json()["receipt"]
        visits[0] = peers[0].check_in()
        assert put(0, 1).json()["receipt"]["counted"]
        check("copy 2")


def test_a_disk_that_the_server_has_filled_itself_recovers(small_disk: SmallDisk, tmp_path: Path) -> None:
    with (
        Server(small_disk, small_disk.folder, FEDBUFF, LENGTH, clients=3, checkpoint_seconds=1e6) as server,
        ExitStack() as stack,
    ):
        server.folder = small_disk.disk
        server.start()
        enrols = stack.enter_context(closing(Peer(server.url, server.token("enrolment")).http))
        until(lambda: is_ready(server.url))
        peers = [Peer(server.url, enrols.post("/v1/enrol", json={}).json()["token"]) for _ in range(3)]
        for peer in peers:
            stack.enter_context(closing(peer.http))
        refused = counted = 0
        # Each update and each version takes 56 kB of the disk's 24 MB, and no checkpoint is due.
        for number in range(300):
            peer = peers[number % 3]
            answer = peer.http.post("/v1/checkin", json={})
            if answer.status_code == 200:
                answer = peer.put(answer.json()["visit"], body_of(torch.full((LENGTH,), 0.1)))
            if answer.status_code == 200:
                counted += answer.json()["receipt"]["counted"]
                continue
            assert kind_of(answer, 503) == "no-space"
            refused += 1
            until(lambda: is_ready(server.url))
        assert 0 < refused < 10  # each pause makes room for many updates
        assert counted > 200
        shutil.copytree(small_disk.disk, tmp_path / "copy")  # SQLite opens nothing in /proc
        check_log(tmp_path / "copy")
