"""A server that is killed again and again while clients come and go: what it acknowledged counts once, and only once.

``OFFBEAT_SERVER_KILLS`` says how often; ``make torture`` does 200.
"""

import hashlib
import json
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from offbeat.coordinator import Coordinator
from offbeat.coordinator_records import Call, Receipt
from offbeat.experiments.server_config import load
from offbeat.service.model_files import ModelFiles
from tests.service.conftest import body_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sends signals")

KILLS = int(os.environ.get("OFFBEAT_SERVER_KILLS", "10"))
CLIENTS = 16

MODEL = """
from torch import nn
def make(inputs):
    return nn.Linear(inputs, 1, bias=False)
"""
SERVER = """
[service]
folder = "server"
clients = 16
port = {port}
tls = false
checkpoint_seconds = 0.2
requests_a_second = 1e6

[model]
name = "own_model.py:make"
arguments = {{ inputs = {length} }}

[local]
steps = 1
batch_size = 1
lr = 0.1

[algorithm]
{algorithm}

[server]
lease_seconds = 1.5
"""
FEDAVG = "algorithm = 'fedavg'\ncohort = 6"
FEDBUFF = "algorithm = 'fedbuff'\nbuffer_size = 3\nconcurrency = 10"
FEDASYNC = "algorithm = 'fedasync'\nconcurrency = 10"


class Server:
    """The process that is killed."""

    def __init__(self, file: Path, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._line = json.dumps([str(file)])
        self._launcher = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("server_launcher.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=file.parent,
        )
        self._process = 0

    def start(self) -> None:
        self._process = self._tell(self._line)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal, and return how the server ended."""
        os.kill(self._process, number)
        return self._tell("null")

    def close(self) -> None:
        self._launcher.communicate()

    def _tell(self, line: str) -> int:
        assert self._launcher.stdin is not None
        assert self._launcher.stdout is not None
        self._launcher.stdin.write(line + "\n")
        self._launcher.stdin.flush()
        return int(self._launcher.stdout.readline())


class Flapping(threading.Thread):
    """A client that comes and goes, over a line that breaks, and writes down what it was told."""

    def __init__(self, url: str, token: str, length: int, stop: threading.Event, seed: int) -> None:
        super().__init__(daemon=True)
        self.told: dict[int, Receipt] = {}  # by visit
        self.client = -1
        self.problems: list[str] = []
        self._token = token
        self._length = length
        self._ended = stop
        self._random = random.Random(seed)
        self._http = httpx.Client(base_url=url, timeout=10.0)

    def run(self) -> None:
        try:
            enrolled = self._ask("POST", "/v1/enrol", token=self._token, json={})
            if enrolled is None:
                return
            self.client, self._token = enrolled["client"], enrolled["token"]
            while not self._ended.is_set():
                self._turn()
        except Exception as error:
            self.problems.append(repr(error))
        finally:
            self._http.close()

    def _turn(self) -> None:
        answer = self._ask("POST", "/v1/checkin", json={"wait_seconds": self._random.choice([0.0, 0.3])})
        visit = answer and answer["visit"]
        if not visit:
            time.sleep(0.02)
            return
        time.sleep(self._random.choice([0.0, 0.0, 0.05, 0.2]))
        fate = self._random.random()
        if fate < 0.05:
            self._ask("POST", f"/v1/visits/{visit['number']}/give-up")
        elif fate < 0.1:
            time.sleep(2.0)  # longer than its lease
        else:
            self._upload(visit, again=fate > 0.8)

    def _upload(self, visit: dict[str, Any], *, again: bool) -> None:
        number = visit["number"]
        body = body_of(vector_of(self.client, number, self._length))
        head = {
            "version": visit["version"],
            "bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
            "examples": 1 + self.client,
            "steps": 1,
            "normaliser": 1.0,
            "since": visit["since"],
        }
        pieces = self._random.random() < 0.3
        while not self._ended.is_set():
            state = self._ask("GET", f"/v1/uploads/{number}")
            if state is None:
                return
            if not state["wanted"]:
                self._note(number, state["receipt"])
                return
            offset = state["offset"]
            end = offset + self._random.randrange(1, len(body)) if pieces else len(body)
            headers = {"Offbeat-Update": json.dumps(head), "Upload-Offset": str(offset)}
            answer = self._ask("PUT", f"/v1/uploads/{number}", content=body[offset:end], headers=headers)
            if answer and "receipt" in answer:
                self._note(number, answer["receipt"])
                if not again:
                    return
                again = False

    def _note(self, number: int, receipt: dict[str, Any]) -> None:
        said = Receipt(**receipt)
        if self.told.setdefault(number, said) != said:
            self.problems.append(f"visit {number}: first {self.told[number]}, then {said}")

    def _ask(self, method: str, path: str, *, token: str | None = None, headers: Any = None, **what: Any) -> Any:
        """Ask until there is an answer; None if there is none before the end, or the request was refused for good."""
        headers = {"Authorization": f"Bearer {token or self._token}", **(headers or {})}
        while not self._ended.is_set():
            try:
                answer = self._http.request(method, path, headers=headers, **what)
            except httpx.TransportError:
                time.sleep(0.02)
                continue
            if answer.status_code == 503:
                time.sleep(0.05)
                continue
            if answer.status_code >= 500:
                self.problems.append(f"{method} {path}: {answer.status_code} {answer.text}")
            if answer.status_code in (404, 409):  # it is over, or the body went on elsewhere
                return None
            if answer.status_code >= 400:
                self.problems.append(f"{method} {path}: {answer.status_code} {answer.text}")
                return None
            return answer.json() if answer.content else {}
        return None


def vector_of(client: int, visit: int, length: int) -> Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(1000 * client + visit))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.mark.parametrize(
    ("algorithm", "length"),
    [(FEDBUFF, 20), (FEDAVG, 400_000), (FEDASYNC, 20)],
    ids=["fedbuff", "fedavg with large models", "fedasync"],
)
def test_killed_at_random_it_loses_nothing_and_counts_nothing_twice(
    algorithm: str, length: int, tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "own_model.py").write_text(MODEL)
    file = tmp_path / "server.toml"
    file.write_text(SERVER.format(port=port, algorithm=algorithm, length=length))
    seed = random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")  # shown if the test fails
    numbers = random.Random(seed)

    server = Server(file, port)
    server.start()
    token_file = tmp_path / "server" / "enrolment-token"
    end = time.monotonic() + 30
    while not (token_file.exists() and token_file.read_text().endswith("\n")):
        assert time.monotonic() < end, "the server does not start"
        time.sleep(0.02)
    stop = threading.Event()
    clients = [
        Flapping(server.url, token_file.read_text().strip(), length, stop, numbers.randrange(2**32))
        for _ in range(CLIENTS)
    ]
    for client in clients:
        client.start()
    for _ in range(KILLS):
        time.sleep(numbers.uniform(0.05, 1.0))
        assert server.kill() == signal.SIGKILL
        server.start()
    time.sleep(1.0)
    stop.set()
    for client in clients:
        client.join(30)
    assert server.kill(signal.SIGTERM) == 0
    server.close()

    assert [problem for client in clients for problem in client.problems] == []
    told = {(client.client, visit): receipt for client in clients for visit, receipt in client.told.items()}
    assert len(told) > KILLS
    check(tmp_path, file, told, length)


def check(folder: Path, file: Path, told: dict[tuple[int, int], Receipt], length: int) -> None:
    """Feed the log to a coordinator that nobody disturbs, and compare what comes of it."""
    config = load(file)
    initial = initial_model(folder, file)
    coordinator = Coordinator(
        config.build_algorithm(),
        initial,
        clients=CLIENTS,
        local=config.plan(),
        seed=config.service.seed,
        lease_seconds=config.server.lease_seconds or 0.0,
    )
    receipts: dict[tuple[int, int], Receipt] = {}
    with sqlite3.connect(folder / "server" / "offbeat.sqlite") as database:
        rows = database.execute("SELECT number, name, arguments FROM log ORDER BY number").fetchall()
    database.close()
    assert [number for number, *_ in rows] == list(range(1, len(rows) + 1))
    for _, name, text in rows:
        arguments = json.loads(text)
        if name == "receive":
            client, visit = arguments["client"], arguments["visit"]
            assert (client, visit) not in receipts, "an update was applied twice"
            vector = vector_of(client, visit, length)
            receipts[client, visit] = coordinator.receive(vector=vector, base=None, **arguments)
        elif name == "offer":
            receipt = coordinator.offer(**arguments)
            assert receipt is not None
            receipts[arguments["client"], arguments["visit"]] = receipt
        else:
            coordinator.replay(Call(name, arguments))
    for which, receipt in told.items():
        # Of an older visit that did not count, nobody knows any more how stale it was.
        assert receipt.counted is receipts[which].counted
        if receipt.counted:
            assert receipt == receipts[which]
    version = coordinator.algorithm.version
    assert version > 0
    assert coordinator.statistics.counted == sum(receipt.counted for receipt in receipts.values())
    models = ModelFiles(folder / "server" / "models", [("weight", (1, length))])
    assert models.versions() >= {version}
    saved = load_file(models.path(version))["weight"].view(-1)
    assert torch.equal(saved, coordinator.algorithm.model)


def initial_model(folder: Path, file: Path) -> Tensor:
    from offbeat.experiments.world import build_model

    return build_model(load(file).model, None, 1).vector.clone()
