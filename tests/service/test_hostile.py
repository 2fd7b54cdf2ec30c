"""Hostile connections: none is an error of the server, none harms others, and none leaves anything behind.

``OFFBEAT_HOSTILE`` says how many; ``make hostile`` makes 100,000.
"""

import logging
import os
import random
import re
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
import torch
from offbeat_core.serving.certificates import make_certificates

from tests.service.conftest import LENGTH, Served, running
from tests.service.hostile_requests import Attacker, Hostile
from tests.service.http_client import until

NUMBER = int(os.environ.get("OFFBEAT_HOSTILE", "300"))
THREADS = 32  # most of them wait for an answer
ANSWER_SECONDS = 0.3
PAUSE_SECONDS = 0.005
_BARE = frozenset({"TLS garbage", "random bytes", "HTTP/2 preface"})  # sent without TLS also where the server has it
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


def send(port: int, hostile: Hostile, tls: ssl.SSLContext | None = None) -> bytes:
    """Send a hostile request; return what the server answers within a short time."""
    answer = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10) as opened, ExitStack() as stack:
        if hostile.is_cut:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection = opened
        if tls is not None and hostile.kind not in _BARE:
            connection = stack.enter_context(tls.wrap_socket(opened))
        for number, piece in enumerate(hostile.pieces):
            time.sleep(PAUSE_SECONDS if number else 0)
            connection.sendall(piece)
        if hostile.is_cut:
            return answer
        connection.settimeout(ANSWER_SECONDS)
        while data := connection.recv(1 << 16):
            answer += data
    return answer


def problem_of(hostile: Hostile, answer: bytes) -> str | None:
    """Return what is wrong with the server's answers, if anything is."""
    for status in map(int, _STATUS.findall(answer)):
        if status >= 500 and status != 503:
            return f"{hostile.kind}: {status} for {hostile.pieces[0][:200]!r}"
    if b"root:" in answer or b"Traceback" in answer:
        return f"{hostile.kind}: {answer[:200]!r}"
    return None


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def resident_mb() -> float:
    """Return the memory of this process, which is also the server's, in MB; 0 where it is not known."""
    status = Path("/proc/self/status")
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return 0.0 if found is None else int(found[1]) / 1000


@pytest.fixture(params=["http", "https"])
def attacked(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Served]:
    """A server over HTTP or TLS."""
    certificates = make_certificates(tmp_path / "tls", ["127.0.0.1"]) if request.param == "https" else None
    if certificates is not None:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca))
    with running(tmp_path / "server", clients=10_000, certificates=certificates) as served:
        yield served


def attacker_of(served: Served, client_token: str, seed: int) -> Attacker:
    described = httpx.get(f"{served.url}/openapi.json", verify=False).json()["paths"]
    routes = [(method.upper(), path) for path, methods in described.items() for method in methods]
    assert len(routes) > 20
    # A stranger's token, a client's and an admin's; a new token would end the client's.
    routes = [route for route in routes if route[1] != "/v1/token"]
    routes += [("GET", path) for path in ("/", "/live/{name}", "/v1/admin/live")]  # of the live page
    admin = (served.folder / "admin-token").read_text().strip()
    return Attacker(routes, ["obc_" + "A" * 43, client_token, admin], random.Random(seed))


def test_hostile_connections_harm_nobody(
    attacked: Served, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
):
    honest, seed = attacked.enrol(), random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")
    token = attacked.enrol().http.headers["authorization"].removeprefix("Bearer ")
    attacker, port = attacker_of(attacked, token, seed), int(attacked.url.rpartition(":")[2])
    tls = None
    if attacked.url.startswith("https"):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    before, kinds, statuses = descriptors(), Counter[str](), Counter[bytes]()
    problems: list[str] = []
    memory: list[float] = []  # MB after each tenth
    began = time.monotonic()

    def attack(hostile: Hostile) -> None:
        kinds[hostile.kind] += 1
        answer = send(port, hostile, tls)
        statuses.update(_STATUS.findall(answer)[:1])
        problem = problem_of(hostile, answer)
        if problem is not None:
            problems.append(problem)

    with caplog.at_level(logging.ERROR), ThreadPoolExecutor(THREADS) as pool:
        first = [attacker.kinds[name]() for name in attacker.kinds]
        for batch in range(0, NUMBER, 1000):
            made = [attacker.next() for _ in range(min(1000, NUMBER - batch))]
            list(pool.map(attack, [*(first if batch == 0 else ()), *made]))
            if batch % (NUMBER // 10 or 1) < 1000:
                memory.append(round(resident_mb()))
    assert problems == []
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert len(kinds) == len(attacker.kinds)
    assert memory[-1] < memory[len(memory) // 2] + 50
    assert sum(statuses.values()) > NUMBER // 2  # most of them were read as requests
    # Where admins can pause and end a run, one of the requests may have.
    attacked.admin.http.post("/v1/admin/resume")
    attacked.admin.http.post("/v1/admin/extend", json={"versions": 9})
    visit = honest.check_in()
    assert visit is not None
    assert honest.send(visit, torch.ones(LENGTH))["counted"]
    assert attacked.service.engine.coordinator.statistics.counted == 1
    if Path("/proc/self/fd").is_dir():
        until(lambda: descriptors() <= before + 20, 90)  # idle connections are closed after 75 s
    with capsys.disabled():
        seconds = time.monotonic() - began
        print(f"\n  {sum(kinds.values())} hostile connections of {len(kinds)} kinds in {seconds:.0f} s; MB: {memory}")


def test_an_error_of_the_server_would_be_found():
    answer = b"HTTP/1.1 200 OK\r\n\r\n{}HTTP/1.1 500 Internal Server Error\r\n\r\n"
    assert problem_of(Hostile("pipelined", [b"x"]), answer) is not None
    assert problem_of(Hostile("path", [b"x"]), b"HTTP/1.1 200 OK\r\n\r\nroot:x:0:0") is not None
    assert problem_of(Hostile("path", [b"x"]), b"HTTP/1.1 503 Service Unavailable\r\n\r\n") is None
