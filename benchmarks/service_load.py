"""The instruments of ``service.py``: a watched server, and plain clients.

The server is in a process of its own. The clients use plain sockets, and each does the least work possible, since it
works on the server's processors: no HTTP library, bodies and digests made before, one receive buffer.
"""

import atexit
import hashlib
import json
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from offbeat_core.digests import DigestKind
from offbeat_core.messages import PROTOCOL

from offbeat.tensor_file import write_tensors

SERVER = """
[service]
folder = "{folder}"
clients = 20000
connections_per_address = 20000
port = 0
tls = {tls}
requests_a_second = 1e9
digest = "{digest}"

[model]
name = "own_model.py:make"
arguments = {{ length = {length} }}

[local]
steps = 1
batch_size = 1
lr = 0.1

[algorithm]
algorithm = "fedbuff"
buffer_size = 10
concurrency = {concurrency}
"""
MODEL = """
from torch import nn
def make(length):
    return nn.Linear(length, 1, bias=False)
"""
LOOK_SECONDS = 0.02
SMALL = 2**16  # bodies up to so many bytes go out with their head


class Offbeat:
    """``offbeat server start``, and the most memory that it has had.

    Args:
        folder: Where its own is made.
        length: The model's parameters.
        concurrency: How many clients have work at a time.
        tls: Whether with TLS, by a certificate of its own making.
        fronts: How many processes of their own serve clients; 0 for none.
        digest: The digest that it prefers for updates.
        changes: Other changes of the file, ``KEY=VALUE``.

    Raises:
        ChildProcessError: It does not start.
    """

    def __init__(
        self,
        folder: Path,
        length: int,
        concurrency: int,
        tls: bool,
        fronts: int = 0,
        digest: DigestKind = "sha256",
        changes: Sequence[str] = (),
    ) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(dir=folder))
        (folder / "own_model.py").write_text(MODEL)
        keep = folder / "server"
        text = SERVER.format(folder=keep, length=length, concurrency=concurrency, tls=str(tls).lower(), digest=digest)
        (folder / "server.toml").write_text(text)
        command = [sys.executable, "-m", "offbeat", "server", "start", str(folder / "server.toml")]
        command += ("--fronts", str(fronts))
        command += (f"--set={change}" for change in changes)
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        atexit.register(self._process.kill)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.store = keep
        if "://" not in line:
            ended = self._process.wait()
            raise ChildProcessError(f"the server of a model of {length:,} parameters did not start: status {ended}")
        host, _, port = line.partition("://")[2].partition(": ")[0].partition(":")
        self._address = (host, int(port))
        self.port = int(port)
        self._context = ssl.create_default_context(cafile=keep / "tls" / "ca.pem") if tls else None
        self._enrolment = (keep / "enrolment-token").read_text().strip()
        self.admin_token = (keep / "admin-token").read_text().strip()
        self._await_fronts(fronts)
        self._at_start = {"start_rss_mib": self._mib("VmHWM:"), "own_at_start_mib": self._mib("RssAnon:")}
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")  # VmHWM begins anew
        self._most_own_mib = self._at_start["own_at_start_mib"]
        self._stop = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _await_fronts(self, number: int) -> None:
        """Wait until the fronts, which start once the server listens, have loaded."""
        while len(list(self.store.glob("fronts/*/partial"))) < number:
            time.sleep(0.1)
        time.sleep(min(number, 2))

    def enrol(self) -> "Client":
        """Return a new client on a new line."""
        client = Client(self.connect(), self._enrolment)
        client.token = client.ask("POST", "/v1/enrol", {})["token"]
        return client

    def connect(self) -> socket.socket:
        """Return a new line."""
        line = socket.create_connection(self._address)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            line = self._context.wrap_socket(line, server_hostname=self._address[0])
        return line

    def memory(self) -> dict[str, int]:
        """Return the most memory that the server has had, and had at its start.

        Both are given in total and without mapped files.
        """
        most = {"server_rss_mib": self._mib("VmHWM:"), "server_own_mib": self._most_own_mib}
        return {name: round(value) for name, value in {**most, **self._at_start}.items()}

    def cpu_seconds(self) -> float:
        """Return the processor time that it has used, with its fronts."""
        return self.leader_seconds() + self.front_seconds()

    def leader_seconds(self) -> float:
        """Return the processor time of the process that leads."""
        return seconds_of(self._process.pid)

    def front_seconds(self) -> float:
        """Return the processor time of the fronts in processes of their own."""
        return sum(map(seconds_of, self._processes()[1:]))

    def own_memory(self) -> tuple[int, int]:
        """Return the memory of leader and fronts, in bytes, without mapped files."""
        leader, *fronts = map(_own_bytes, self._processes())
        return leader, sum(fronts)

    def stop(self, *, at_once: bool = False) -> None:
        """Stop it, or kill it ``at_once``; delete what it has kept."""
        self._stop.set()
        self._process.kill() if at_once else self._process.terminate()
        self._process.communicate()
        shutil.rmtree(self._folder)

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            with suppress(OSError, IndexError):  # it has just ended
                self._most_own_mib = max(self._most_own_mib, self._mib("RssAnon:"))

    def _mib(self, key: str) -> float:
        return sum(self.mib_of_each(key))

    def mib_of_each(self, key: str) -> list[float]:
        """Return a key of ``/proc/…/status`` for the server's process and its children."""
        texts = [Path(f"/proc/{process}/status").read_text() for process in self._processes()]
        return [int(text.split(key)[1].split()[0]) / 1024 for text in texts]

    def _processes(self) -> list[int]:
        """Return the ids of the server's process and of its fronts."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        return [self._process.pid, *(int(child) for task in tasks for child in (task / "children").read_text().split())]


def seconds_of(process: int) -> float:
    """Return the processor time of a process, user and system."""
    return time.clock_gettime(~process << 3 | 2)  # its clock on Linux, as of clock_getcpuclockid


def _own_bytes(process: int) -> int:
    return int(Path(f"/proc/{process}/status").read_text().split("RssAnon:")[1].split()[0]) * 1024


class Ones:
    """The body of an update ``(length,)`` of ones that is never in memory as a whole."""

    def __init__(self, length: int) -> None:
        info = {"dtype": "F32", "shape": [length], "data_offsets": [0, 4 * length]}
        text = json.dumps({"update": info}).encode()
        text += b" " * (-len(text) % 8)
        self._head = struct.pack("<Q", len(text)) + text
        self._length = length
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
        self.sha256 = digest.hexdigest()

    def __len__(self) -> int:
        """Return the number of its bytes."""
        return len(self._head) + 4 * self._length

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield all bytes."""
        yield self._head
        piece = memoryview(struct.pack("<f", 1e-3) * min(self._length, 2**20))
        for begin in range(0, self._length, 2**20):
            yield piece[: 4 * (self._length - begin)]


Body = memoryview | bytes | Ones


class Client:
    """One client over one line."""

    def __init__(self, line: socket.socket, token: str) -> None:
        self.line = line
        self.token = token
        self._buffer = bytearray(2**20)
        self._visit: Any = None

    def send(self, method: str, path: str, value: Any = None, body: Body = b"", **headers: str) -> None:
        """Send a request."""
        if value is not None:
            body, headers["Content-Type"] = json.dumps(value).encode(), "application/json"
        headers |= {
            "Offbeat-Protocol": PROTOCOL,
            "Host": "offbeat",
            "Authorization": f"Bearer {self.token}",
            "Content-Length": str(len(body)),
        }
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {text}" for name, text in headers.items()), "\r\n"]
        head = "\r\n".join(lines).encode()
        if not isinstance(body, Ones) and len(body) <= SMALL:
            self.line.sendall(head + body)
        else:
            self.line.sendall(head)
            for piece in body.pieces() if isinstance(body, Ones) else [body]:
                self.line.sendall(piece)

    def receive(self) -> bytes:
        """Read an answer to its last byte; return its body.

        Of a body larger than the receive buffer, return only the last part.

        Raises:
            ConnectionError: The answer is not the expected one.
        """
        buffer, there = self._buffer, 0
        while (end := buffer.find(b"\r\n\r\n", 0, there)) < 0:
            there += self._read(there)
        head = bytes(buffer[:end]).lower()
        there -= end + 4
        buffer[:there] = buffer[end + 4 : end + 4 + there]
        left = int(head.split(b"content-length:")[1].split()[0]) - there
        while left:
            there = 0 if there == len(buffer) else there
            got = self._read(there)
            there, left = there + got, left - got
        if not head.split()[1].startswith(b"2"):
            raise ConnectionError(f"{head.splitlines()[0]!r}: {bytes(buffer[: min(there, 200)])!r}")
        return bytes(buffer[:there])

    def _read(self, there: int) -> int:
        got = self.line.recv_into(memoryview(self._buffer)[there:])
        if not got:
            raise ConnectionError("the server has hung up")
        return got

    def ask(self, method: str, path: str, value: Any = None, body: Body = b"", **headers: str) -> Any:
        """Make a request, and return what the answer says."""
        self.send(method, path, value, body, **headers)
        return json.loads(self.receive())

    def check_in(self) -> bool:
        """Wait for work; return whether there is some."""
        self._visit = self._work()
        return self._visit is not None

    def _work(self) -> dict[str, Any]:
        return self.ask("POST", "/v1/checkin", {"wait_seconds": 60})["visit"]

    def update(self, body: "memoryview | Ones", digest: dict[str, str]) -> None:
        """Upload an update, and get the next work by the same request.

        If there is no work yet, one more request asks for it.
        """
        visit, self._visit = self._visit or self._work(), None
        head = {"version": visit["version"], "bytes": len(body), **digest, "examples": 1, "steps": 1}
        head |= {"model_sha256": visit["model_sha256"], "normaliser": 1.0, "since": visit["since"]}
        path = f"/v1/uploads/{visit['number']}?checkin=true"
        answer = self.ask("PUT", path, body=body, **{"Offbeat-Update": json.dumps(head)})
        self._visit = answer["next"] and answer["next"]["visit"]

    def beat(self) -> None:
        """Renew the lease of the visit."""
        self.ask("POST", f"/v1/visits/{self._visit['number']}/heartbeat", {})

    def download(self) -> None:
        """Get the first version of the model."""
        self.send("GET", "/v1/models/0")
        self.receive()


@dataclass(frozen=True)
class Load:
    """The results of a load.

    Attributes:
        per_second: Requests, or updates.
        client_cores: Processor seconds per second of this process.
        server_cores: The same of the server.
    """

    per_second: float
    client_cores: float
    server_cores: float


def together(server: Offbeat, works: Sequence[Callable[[], object]], times: int) -> Load:
    """Do each work in a thread of its own, ``times`` times on average.

    The total number is ``times`` for each of them; a faster thread does more.
    """
    tickets = iter(range(times * len(works)))

    def one(work: Callable[[], object]) -> None:
        for _ in tickets:
            work()

    with ThreadPoolExecutor(len(works)) as pool:
        own, its, began = time.process_time(), server.cpu_seconds(), time.perf_counter()
        for done in [pool.submit(one, work) for work in works]:
            done.result()
        seconds = time.perf_counter() - began
        own, its = time.process_time() - own, server.cpu_seconds() - its
    return Load(times * len(works) / seconds, own / seconds, its / seconds)


def body_of(length: int) -> memoryview:
    """Return an update's body."""
    with tempfile.TemporaryFile() as file:
        write_tensors(file, {"update": torch.full((length,), 1e-3)})
        body = memoryview(bytearray(file.tell()))
        file.seek(0)
        file.readinto(body)  # pyright: ignore[reportAttributeAccessIssue]
        return body
