"""Limits of open files: strangers' connections cannot use up the server's own descriptors."""

import errno
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import torch

from offbeat.errors import OffbeatError
from offbeat.service.descriptors import is_shortage, max_connections, raise_limit
from tests.e2e.server_process import MODEL, SERVER, free_port
from tests.service.conftest import Peer, body_of, running
from tests.service.http_client import kind_of

ALGORITHM = "algorithm = 'fedbuff'\nbuffer_size = 1\nconcurrency = 4"
SOFT, HARD = 150, 300


@contextmanager
def limited(folder: Path, soft: int, hard: int) -> Generator[tuple[subprocess.Popen[bytes], str]]:
    """Run a server that may have so many files open."""
    (folder / "own_model.py").write_text(MODEL)
    port = free_port()
    file = folder / "server.toml"
    file.write_text(
        SERVER.format(folder="server", port=port, algorithm=ALGORITHM, server="", length=6, clients=2)
        + "\n[stop]\nversions = 1000\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "offbeat", "serve", str(file)],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process, f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def wait_until_ready(url: str) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/readyz").status_code == 200:
                return
        time.sleep(0.05)
    raise AssertionError("the server does not start")


def test_idle_connections_of_strangers_do_not_end_the_server(tmp_path):
    with limited(tmp_path, SOFT, HARD) as (process, url), ExitStack() as stack:
        wait_until_ready(url)
        token = (tmp_path / "server" / "enrolment-token").read_text().strip()
        with closing(Peer(url, token).http) as http:
            own = http.post("/v1/enrol", json={}).json()["token"]
        peer = Peer(url, own)
        stack.enter_context(closing(peer.http))
        peer.check_in()
        address = "127.0.0.1", int(url.rpartition(":")[2])
        for _ in range(2 * HARD):
            stranger = stack.enter_context(closing(socket.socket()))
            stranger.setblocking(False)
            with suppress(BlockingIOError):
                stranger.connect(address)
        time.sleep(0.5)
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        assert f"Max open files            {HARD} " in limits
        assert len(list(Path(f"/proc/{process.pid}/fd").iterdir())) < HARD - 32
        for number in range(5):
            visit = peer.check_in()
            assert visit["number"] == number
            assert peer.send(visit, torch.ones(6))["counted"]
        assert process.poll() is None


def test_a_limit_that_leaves_no_room_for_connections_is_refused():
    assert max_connections(10**6) == 4000
    assert max_connections(1024) == 464
    with pytest.raises(OffbeatError, match=r"100 files .*ulimit -n 1024"):
        max_connections(100)


def test_the_soft_limit_is_raised_to_the_hard_one():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        raised = raise_limit()
        assert raised == resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= min(soft, hard, 2**16)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_shortage_of_descriptors_is_answered_by_try_again_later(tmp_path, monkeypatch):
    length = 600_000  # large enough for a file of its own
    with running(tmp_path / "server", layout=[("w", (length,))], model=torch.zeros(length)) as server:
        peer = server.enrol()
        visit = peer.check_in()

        def fail(*_):
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patch:
            patch.setattr("offbeat.service.updates.growing_file.os.open", fail)
            answer = peer.put(visit, body_of(torch.ones(length)))
        assert kind_of(answer, 503) == "busy"
        assert answer.headers["retry-after"] == "5"
        assert peer.send(visit, torch.ones(length))["counted"]


@pytest.mark.parametrize(("code", "expected"), [(errno.EMFILE, True), (errno.ENFILE, True), (errno.ENOSPC, False)])
def test_a_shortage_of_descriptors_is_not_a_full_disk(code, expected):
    assert is_shortage(OSError(code, "")) is expected
