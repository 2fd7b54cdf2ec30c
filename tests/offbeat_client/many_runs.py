"""A server of several runs, made of servers of one: it passes on what a site says, with the site's token there."""

import json
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import httpx

from offbeat.algorithms import FedBuff
from tests.service.conftest import Peer, Served, running

_LONGEST_WAIT = 0.2
_PASSED_ON = {"etag", "upload-offset", "retry-after", "content-range", "content-type"}


class ManyRuns:
    """A server of these runs, to which every site is admitted; it runs within the context.

    ``questions`` are the bodies of ``/v1/work``, ``given`` the runs that it named.
    """

    def __init__(self, runs: Mapping[str, Served], expires_seconds: float | None = None) -> None:
        self.runs = dict(runs)
        self.questions: list[dict[str, Any]] = []
        self.given: list[str] = []
        self._renewals = 0
        self.tokens: list[str] = []  # the site's, the last one is valid
        self._expires_seconds = expires_seconds
        self._peers: dict[str, Peer] = {}
        self._open: str | None = None  # the run in which the site has a visit
        self._lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"state": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, method: str, path: str, token: str, headers: Mapping[str, str], body: bytes) -> httpx.Response:
        """Return the answer to a request."""
        with self._lock:
            if path == "/v1/enrol":
                return httpx.Response(201, json={"client": 0, "has_runs": True, **self._new_token(json.loads(body))})
            if token not in self.tokens:
                return httpx.Response(401, json={"kind": "unknown-token", "detail": "unknown"})
            del self.tokens[: self.tokens.index(token)]  # an older one ends when a new one is used
            if path == "/v1/token":
                self._renewals += 1
                return httpx.Response(200, json=self._new_token({"token": f"obc_{self._renewals}"}))
            if path == "/v1/work":
                self.questions.append(json.loads(body))
                return httpx.Response(200, json=self._work(**self.questions[-1]))
            _, _, name, rest = path.split("/", 3)
            answer = self._peer(name).http.request(method, f"/{rest}", content=body, headers=_but_token(headers))
            if answer.is_success and (method == "PUT" or path.endswith("/give-up")):
                self._open = None
            return answer

    def _new_token(self, asked: dict[str, Any]) -> dict[str, Any]:
        self.tokens.append(asked["token"])
        return {"token": asked["token"], "expires_seconds": self._expires_seconds}

    def _peer(self, name: str) -> Peer:
        if name not in self._peers:
            self._peers[name] = self.runs[name].enrol()
        return self._peers[name]

    def _work(self, wait_seconds: float = 0.0, without: tuple[str, ...] = ()) -> dict[str, Any]:
        end = time.monotonic() + min(wait_seconds, _LONGEST_WAIT)
        while True:
            finished = 0
            for name in sorted(self.runs, key=lambda name: (name != self._open, self.given.count(name))):
                answer = self._peer(name).http.post("/v1/checkin", json={}).json()
                finished += answer.get("finished", False)
                if name in without or not ("kind" in answer or answer["visit"] or answer["evaluation"]):
                    continue
                self._open = name
                self.given.append(name)
                return {"run": name, "client": 0, "finished": False}
            if finished == len(self.runs) or time.monotonic() > end:
                return {"run": None, "client": None, "finished": finished == len(self.runs)}
            time.sleep(0.01)


@contextmanager
def hosting(folder: Path, expires_seconds: float | None = None, **runs: dict[str, Any]) -> Generator[ManyRuns]:
    """Run a server of these runs; the values are options of ``running``."""
    with ExitStack() as servers:
        served = {
            name: servers.enter_context(
                running(folder / name, **{"make": _fedbuff, "clients": 1, "stop_versions": 3, **options})
            )
            for name, options in runs.items()
        }
        with ManyRuns(served, expires_seconds) as host:
            yield host


def _fedbuff() -> FedBuff:
    return FedBuff(buffer_size=1, concurrency=1)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: ManyRuns

    def log_message(self, *_: Any) -> None: ...

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        token = self.headers["Authorization"].removeprefix("Bearer ")
        answer = self.state.answer(self.command, self.path.partition("?")[0], token, dict(self.headers), body)
        self.send_response(answer.status_code)
        for header, value in answer.headers.items():
            if header in _PASSED_ON:
                self.send_header(header, value)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_POST = do_PUT = _serve  # noqa: N815


def _but_token(headers: Mapping[str, str]) -> dict[str, str]:
    left_out = {"authorization", "host", "content-length", "connection", "transfer-encoding"}
    return {name: value for name, value in headers.items() if name.lower() not in left_out}
