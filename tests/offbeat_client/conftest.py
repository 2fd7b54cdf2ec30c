import hashlib
import json
import math
import os
import ssl
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from offbeat_client.http.connection import Backoff, Connection
from offbeat_client.visit import Visit
from offbeat_core.local_plan import LocalPlan
from offbeat_core.messages import PlanMessage
from offbeat_core.serving.certificates import make_certificates
from safetensors.numpy import save

Arrays = dict[str, NDArray[np.float32]]
QUICK = Backoff(first_seconds=0.001, largest_seconds=0.002, attempts=4)
PLAN = LocalPlan(steps=3, batch_size=2, lr=0.1)
VISIT: dict[str, Any] = {"since": None, "payload": "delta", "length": 6, "seed": 5}


def model_bytes(model: Arrays, version: int) -> bytes:
    layout = json.dumps([[name, list(tensor.shape)] for name, tensor in model.items()])
    return save({**model, ".down": np.full((6,), 2.0, np.float32)}, {"version": str(version), "layout": layout})


def model_of(version: int, model: Arrays) -> Arrays:
    """Return the model of a version, which differs from those of all others."""
    return model | {"bias": model["bias"] + np.float32(version / 64)}


@dataclass
class Fault:
    """A fault of one request: a refusal, or a connection that breaks after some bytes of a body."""

    status: int = 0
    kind: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body_bytes: int | None = None
    before_answer: bool = False  # the connection breaks after the work; only the answer is lost


class Server:
    """A small server of the protocol on a real socket. It believes everything, and can be made to fail."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.models: dict[int, bytes] = {}
        self.etags: dict[int, str] = {}
        self.model_headers: dict[str, str] = {}
        self.is_chunked = False  # whether models come without their size
        self.visits: list[dict[str, Any]] = []  # those to come
        self.open: dict[str, Any] | None = None
        self.bodies: dict[int, bytes] = defaultdict(bytes)
        self.announced: dict[int, dict[str, Any]] = {}
        self.receipts: dict[int, dict[str, Any]] = {}
        self.counts: Callable[[int], bool] = lambda visit: True
        self.beat: dict[str, Any] = {"wanted": True, "lease_seconds": None, "urgent": False}
        self.expires_seconds: float | None = None
        self.heard: list[tuple[str, str, dict[str, str]]] = []
        self.queries: list[str] = []
        self.gives_next = True  # where it was asked to
        self.probe: dict[str, Any] = {"probe": None, "upload_bytes": 0}  # what it asks to be measured
        self.probed: list[int] = []  # bytes of the probes' bodies
        self.speeds: list[dict[str, Any]] = []
        self.share: Callable[[int], dict[str, Any] | None] = lambda visit: None  # the facts for a visit's share
        self.is_stale: Callable[[dict[str, Any]], bool] = lambda announced: False
        self.put: list[tuple[int, dict[str, Any], bytes]] = []  # visit, announcement and body of each upload
        self.received = bytearray()  # every byte
        self.evaluations: list[dict[str, Any]] = []  # those to ask for, before any visit
        self.evaluated: list[tuple[int, dict[str, Any]]] = []
        self.faults: dict[tuple[str, str], list[Fault]] = defaultdict(list)
        self.raw: dict[str, tuple[int, dict[str, str], bytes]] = {}  # by path, answers to any request
        self.lock = threading.Lock()
        methods = dict.fromkeys(("do_GET", "do_POST", "do_PUT"), _Handler.serve)
        handler = type("Handler", (_Handler,), {"state": self, **methods})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        if tls is not None:
            self._http.socket = tls.wrap_socket(self._http.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def serve(self, version: int, model: Arrays) -> None:
        self.models[version] = model_bytes(model, version)
        self.etags[version] = f'"{self.digest(version)}"'

    def digest(self, version: int) -> str:
        return hashlib.sha256(self.models[version]).hexdigest() if version in self.models else "0" * 64

    def offer(self, number: int, version: int, plan: LocalPlan = PLAN, **values: Any) -> None:
        visit = {"number": number, "version": version, "plan": PlanMessage.of(plan).model_dump(), **VISIT}
        self.visits.append({**visit, "lease_seconds": None, "urgent": False, **values})

    def paths(self, method: str) -> list[str]:
        return [path for heard, path, _ in self.heard if heard == method]


def recorded(stream: Any, copy: bytearray) -> SimpleNamespace:
    """Return a stream that copies what is read."""

    def copying(read: Callable[..., bytes]) -> Callable[..., bytes]:
        def call(*arguments: Any) -> bytes:
            data = read(*arguments)
            copy.extend(data)
            return data

        return call

    return SimpleNamespace(read=copying(stream.read), readline=copying(stream.readline), close=stream.close)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: Server

    def setup(self) -> None:
        super().setup()
        self.rfile = recorded(self.rfile, self.state.received)

    def log_message(self, *_: Any) -> None: ...

    def serve(self) -> None:
        server, method = self.state, self.command
        with server.lock:
            self.path, _, query = self.path.partition("?")
            server.heard.append((method, self.path, dict(self.headers)))
            server.queries.append(query)
            faults = server.faults[method, self.path]
            fault = faults.pop(0) if faults else Fault()
            size = int(self.headers.get("Content-Length", 0))
            if method == "PUT" and self.path != "/v1/probe":
                self._put(int(self.path.rsplit("/", 1)[1]), size, fault, check_in=query == "checkin=true")
                return
            body = self.rfile.read(size)
            if self.path in server.raw:
                self._send(*server.raw[self.path])
            elif fault.status:
                self._refuse(fault)
            elif self.path == "/v1/probe":
                self._probe(method, body)
            elif self.path.startswith("/v1/models/"):
                self._model(int(self.path.rsplit("/", 1)[1]), fault)
            else:
                answer = self._json(body)
                if fault.before_answer:
                    self._hang_up()
                elif answer is None:
                    self._refuse(Fault(404, "no-such-visit"))
                else:
                    self._answer(answer)

    def _probe(self, method: str, body: bytes) -> None:
        server = self.state
        if method == "GET":
            wanted = server.probe.get("probe")
            self._answer(server.probe | ({"probe": self._with_digest(wanted)} if wanted else {}))
            return
        if method == "POST":
            server.speeds.append(json.loads(body))
        else:
            server.probed.append(len(body))
        self._answer({})

    def _json(self, body: bytes) -> dict[str, Any] | None:
        server, path = self.state, self.path
        if path in ("/v1/enrol", "/v1/token"):
            answer = {"token": f"obc_{len(server.heard)}", "expires_seconds": server.expires_seconds}
            return {"client": 2, **answer} if path == "/v1/enrol" else answer
        if path == "/v1/checkin":
            return self._checked_in()
        if path == "/v1/examples":
            return {}
        number = int(path.split("/")[3])
        if path.startswith("/v1/evaluations/"):
            server.evaluated += [] if path.endswith("/give-up") else [(number, json.loads(body))]
            return {"counted": True}
        if path.endswith("/give-up"):
            server.open = None
            return {}
        if path.endswith("/heartbeat"):
            return server.beat
        if (receipt := server.receipts.get(number)) is not None:
            return {"wanted": False, "offset": 0, "receipt": receipt}
        if server.open is None or server.open["number"] != number:
            return None
        return {"wanted": True, "offset": len(server.bodies[number]), "receipt": None, "share": server.share(number)}

    def _checked_in(self) -> dict[str, Any]:
        server = self.state
        if server.open is None and server.evaluations:
            asked = self._with_digest(server.evaluations.pop(0))
            return {"visit": None, "retry_after_seconds": None, "finished": False, "evaluation": asked}
        if server.open is None and server.visits:
            server.open = self._with_digest(server.visits.pop(0))
        return {"visit": server.open, "retry_after_seconds": None, "finished": server.open is None}

    def _with_digest(self, work: dict[str, Any]) -> dict[str, Any]:
        return {"model_sha256": self.state.digest(work["version"]), **work}

    def _model(self, version: int, fault: Fault) -> None:
        server = self.state
        if version not in server.models:
            self._refuse(Fault(404, "no-such-version"))
            return
        body, first = server.models[version], 0
        if (wanted := self.headers.get("Range")) and self.headers.get("If-Range") == server.etags[version]:
            first = int(wanted.removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if first else 200)
        self.send_header("ETag", server.etags[version])
        for name, value in server.model_headers.items():
            self.send_header(name, value)
        if server.is_chunked:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            with suppress(ConnectionError):  # the client has had enough
                self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            return
        self.send_header("Content-Length", str(len(body) - first))
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        if fault.body_bytes is None:
            with suppress(ConnectionError):  # the client has had enough
                self.wfile.write(body[first:])
        else:
            self.wfile.write(body[first : first + fault.body_bytes])
            self._hang_up()

    def _put(self, number: int, size: int, fault: Fault, *, check_in: bool) -> None:
        server = self.state
        offset, head = int(self.headers["Upload-Offset"]), json.loads(self.headers["Offbeat-Update"])
        body = self.rfile.read(size if fault.body_bytes is None else fault.body_bytes)
        server.put.append((number, head, body))
        if fault.status:
            self._refuse(fault)
            return
        if (receipt := server.receipts.get(number)) is not None:
            self._answer({"receipt": receipt})
            return
        if server.open is None or server.open["number"] != number:
            self._refuse(Fault(404, "no-such-visit"))
            return
        if offset == 0:
            server.bodies[number] = b""
        if offset != len(server.bodies[number]):
            self._refuse(Fault(409, "wrong-offset", {"Upload-Offset": str(len(server.bodies[number]))}))
            return
        server.bodies[number] += body
        if fault.body_bytes is not None:
            self._hang_up()
            return
        if hashlib.sha256(server.bodies[number]).hexdigest() != head["sha256"]:
            server.bodies[number] = b""
            self._refuse(Fault(422, "wrong-digest"))
            return
        if server.is_stale(head):
            server.bodies[number] = b""
            self._refuse(Fault(409, "stale-share"))
            return
        server.announced[number] = head
        server.receipts[number] = {"counted": server.counts(number), "staleness": 0, "new_version": False}
        server.open = None
        if fault.before_answer:
            self._hang_up()
        else:
            following = self._checked_in() if check_in and server.gives_next else None
            self._answer({"receipt": server.receipts[number], "next": following})

    def _answer(self, value: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(status, headers or {}, json.dumps(value).encode())

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, header in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, header)
        self.end_headers()
        with suppress(ConnectionError):  # the client has had enough
            self.wfile.write(body)

    def _refuse(self, fault: Fault) -> None:
        problem = {"title": "", "status": fault.status, "kind": fault.kind, "detail": f"it is {fault.kind}"}
        self._answer(problem, fault.status, fault.headers)

    def _hang_up(self) -> None:
        self.wfile.flush()
        self.close_connection = True


class KilledError(BaseException):
    """A kill of the client, which no handler of errors catches."""


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that makes the n-th change of the disk, request or answer from now on a kill."""
    left = math.inf

    def count() -> None:
        nonlocal left
        left -= 1
        if left < 0 and threading.current_thread() is threading.main_thread():
            raise KilledError

    def killable(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            count()
            return function(*arguments, **options)

        return call

    def send(*arguments: Any, real: Callable[..., Any] = Connection.send, **options: Any) -> Any:
        count()
        response = real(*arguments, **options)
        count()
        return response

    def arm(n: float) -> None:
        nonlocal left
        left = n

    for name in ("replace", "unlink"):
        monkeypatch.setattr(Path, name, killable(getattr(Path, name)))
    for name in ("fsync", "fdatasync"):  # the machine stays up, so nothing need be brought to disk
        monkeypatch.setattr(os, name, killable(lambda descriptor: None))
    monkeypatch.setattr(Connection, "send", send)
    return arm


@pytest.fixture
def server() -> Iterator[Server]:
    with closing(Server()) as made:
        yield made


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """A server over TLS, and its CA."""
    files = make_certificates(tmp_path / "tls", ["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.certificate, files.key)
    with closing(Server(context)) as made:
        made._http.handle_error = lambda *_: None  # of a client that does not trust it
        yield made, files.ca


@pytest.fixture
def connection(server: Server) -> Iterator[Connection]:
    with Connection(server.url, "obc_1", backoff=QUICK) as made:
        yield made


@pytest.fixture
def fault() -> type[Fault]:
    return Fault


@pytest.fixture
def quick() -> Backoff:
    return QUICK


@pytest.fixture
def model() -> Arrays:
    """Six parameters, whose order is not that of their names."""
    return {"weight": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32), "bias": np.array([5.0, 6.0], np.float32)}


@pytest.fixture
def visit() -> Callable[..., Visit]:
    """Return a function that makes a visit of client 2."""

    def make(plan: LocalPlan = PLAN, number: int = 4, version: int = 12, **values: Any) -> Visit:
        return Visit(client=2, number=number, version=version, plan=plan, **VISIT | values)

    return make


@pytest.fixture
def model_file(tmp_path: Path, model: Arrays) -> Path:
    path = tmp_path / "model-12.safetensors"
    path.write_bytes(model_bytes(model, 12))
    return path
