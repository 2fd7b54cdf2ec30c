"""Fronts with folders of their own, as on other machines: kills lose and double no update.

``OFFBEAT_TAKE_OVERS`` says how often; ``make torture-cluster`` does 100.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from offbeat.service.internal.internal_certificates import make_internal_certificates
from tests.e2e.balancer import Balancer
from tests.e2e.flapping import FEDAVG, FEDBUFF, Flapping, acknowledged
from tests.e2e.server_process import Launcher, Server, free_port, until
from tests.e2e.test_take_over import CLIENTS, STORE, check_nothing_lost, database, is_ready
from tests.postgres import postgres as postgres

__all__ = ["database"]

TAKE_OVERS = int(os.environ.get("OFFBEAT_TAKE_OVERS", "1"))
FRONTS = """
[fronts]
leaders = {leaders}
host = "127.0.0.1"
port = {port}
ca = "{tls}/ca.pem"
certificate = "{tls}/{name}.pem"
key = "{tls}/{name}.key"
"""


class Front(Server):
    """A front; ``start`` and ``kill`` as of a server."""

    program = ("server", "front")


class Cluster:
    """Two servers that may lead, and two fronts behind a balancer."""

    def __init__(self, stack: ExitStack, launcher: Launcher, folder: Path, store: str, algorithm: str, length: int):
        ports, tls = [free_port(), free_port()], folder / "tls"
        leaders = [f"localhost:{port}" for port in ports]
        make_internal_certificates(tls, ["one", "two"], ["three", "four"])
        self.all: list[Server] = []
        for number, name in enumerate(("one", "two", "three", "four")):
            (folder / name).mkdir()
            extra = store + FRONTS.format(leaders=leaders, port=ports[number % 2], tls=tls, name=name)
            kind = Server if number < 2 else Front
            self.all.append(stack.enter_context(kind(launcher, folder / name, algorithm, length, CLIENTS, extra=extra)))
            if number:
                (folder / name / "own_model.py").unlink()
                (folder / name / "own_model.py").symlink_to(folder / "one" / "own_model.py")
        self.servers, self.fronts = self.all[:2], self.all[2:]
        self.balancer = stack.enter_context(Balancer([front.port for front in self.fronts]))

    def leader(self) -> Server:
        """Return the server that answers, once one does."""
        return until(lambda: next((server for server in self.servers if is_ready(server.url)), None))

    def is_ready(self) -> bool:
        """Return whether a client would be answered."""
        return is_ready(self.balancer.url)


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize(
    ("algorithm", "length"),
    [
        pytest.param(FEDBUFF, 20, id="small"),
        pytest.param(FEDAVG, 50_000, id="large", marks=pytest.mark.long),  # see test_take_over.py
    ],
)
def test_fronts_lose_nothing_whoever_dies(
    algorithm: str, length: int, database: str, launcher: Launcher, tmp_path: Path, say: Callable[[str], None]
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")
    numbers, stop, seconds = random.Random(seed), threading.Event(), list[float]()
    store = STORE.format(log=database, blobs=f"file://{tmp_path}/blobs")
    with ExitStack() as stack:
        cluster = Cluster(stack, launcher, tmp_path, store, algorithm, length)
        for process in cluster.all:
            process.start()
        first = cluster.leader()
        until(cluster.is_ready)
        clients = [
            Flapping(cluster.balancer.url, first.token("enrolment"), length, stop, numbers.randrange(2**32))
            for _ in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        try:
            for number in range(TAKE_OVERS):
                _go_on(clients)
                time.sleep(numbers.uniform(0.05, 0.5))
                front = numbers.choice(cluster.fronts)
                assert front.kill() == signal.SIGKILL
                front.start()
                _go_on(clients)
                leader = cluster.leader()
                other = next(server for server in cluster.servers if server is not leader)
                began = time.monotonic()
                sleeps = number % 2 == 1
                leader.strike(signal.SIGSTOP if sleeps else signal.SIGKILL)
                until(lambda: is_ready(other.url))  # noqa: B023
                until(cluster.is_ready)
                seconds.append(time.monotonic() - began)
                if sleeps:
                    leader.strike(signal.SIGCONT)
                leader.wait()
                leader.start()
            _go_on(clients)
        finally:
            stop.set()
            for client in clients:
                client.join(30)
        last = cluster.leader()
        for process in [*cluster.fronts, *(server for server in cluster.servers if server is not last), last]:
            assert process.kill(signal.SIGTERM) in (0, signal.SIGTERM)  # it may hardly have begun
    check_nothing_lost(clients, last, database, length)
    shown = ", ".join(f"{each:.1f}" for each in sorted(seconds))
    say(f"{TAKE_OVERS} leaders and fronts lost, {acknowledged(clients)} updates acknowledged; seconds: {shown}")


def _go_on(clients: list[Flapping]) -> None:
    before = acknowledged(clients)
    until(lambda: acknowledged(clients) > before)


def test_a_front_needs_its_sections_and_says_so(launcher: Launcher, tmp_path: Path) -> None:
    with Front(launcher, tmp_path, FEDBUFF, 20, CLIENTS) as front:
        front.start()
        assert os.waitstatus_to_exitcode(front.wait()) != 0
        assert "needs [store] and [fronts]" in front.log.read_text()
    with pytest.raises(httpx.TransportError):
        httpx.get(front.url)
