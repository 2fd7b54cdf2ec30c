"""A real server on a real socket, and a small client whose requests a test controls."""

import asyncio
import hashlib
import io
import json
import math
import time
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from offbeat_core.messages import PROTOCOL

from offbeat.algorithms import Algorithm, FedBuff, LocalPlan
from offbeat.coordinator import Coordinator
from offbeat.coordinator.participation_limits import Participation
from offbeat.service.server.serving import Listening, serve
from offbeat.service.server_settings import ServerSettings, ServiceSettings
from offbeat.tensor_file import write_tensors

PLAN = LocalPlan(steps=2, batch_size=1, lr=0.5)
LENGTH = 6
LAYOUT = [("weight", (2, 2)), ("bias", (2,))]


def body_of(vector: torch.Tensor) -> bytes:
    file = io.BytesIO()
    write_tensors(file, {"update": vector})
    return file.getvalue()


def _answer(ask: Callable[[], httpx.Response], status: int) -> httpx.Response:
    """Return the answer, which has this status; on a busy machine PostgreSQL may be silent before for some seconds."""
    end = time.monotonic() + 30
    while "the log does not answer" in (answer := ask()).text and time.monotonic() < end:
        time.sleep(0.1)
    assert answer.status_code == status, answer.text
    return answer


class Peer:
    """One client's requests; it supports what any algorithm needs."""

    def __init__(self, url: str, token: str | None) -> None:
        self.token = token
        headers = {"Offbeat-Supports": "corrects_gradients, keeps_regulariser, needs_loss, privacy"}
        headers |= {"Offbeat-Protocol": PROTOCOL}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=30.0, verify=False)  # loading CAs takes long

    def check_in(self, wait_seconds: float = 0.0) -> dict[str, Any] | None:
        answer = _answer(lambda: self.http.post("/v1/checkin", json={"wait_seconds": wait_seconds}), 200)
        return answer.json()["visit"]

    def head(self, visit: dict[str, Any], body: bytes, **changes: Any) -> dict[str, Any]:
        head = {
            "version": visit["version"],
            "model_sha256": visit["model_sha256"],
            "bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
            "examples": 10,
            "steps": visit["plan"]["steps"],
            "normaliser": float(visit["plan"]["steps"]),
            "since": visit["since"],
        }
        return head | changes

    def put(
        self,
        visit: dict[str, Any],
        body: bytes,
        *,
        offset: int = 0,
        head: Any = None,
        params: Any = None,
        **changes: Any,
    ) -> httpx.Response:
        headers = {
            "Upload-Offset": str(offset),
            "Offbeat-Update": json.dumps(head or self.head(visit, body, **changes)),
        }
        path = f"/v1/uploads/{visit['number']}"
        return self.http.put(path, params=params, content=body[offset:], headers=headers)

    def send(self, visit: dict[str, Any], vector: torch.Tensor, **changes: Any) -> dict[str, Any]:
        return _answer(lambda: self.put(visit, body_of(vector), **changes), 200).json()["receipt"]


class Served:
    """A running server."""

    def __init__(self, listening: Listening, folder: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.url = listening.url
        self.public_url = listening.public_url
        self.folder = folder
        self.service = listening.service
        self.front = listening.front
        self.fronts = listening.fronts
        self.checkpoints = listening.checkpoints
        self.enrolment_token = listening.enrolment_token
        self.admin = Peer(self.url, (folder / "admin-token").read_text().strip())
        self._peers: list[Peer] = [self.admin]

    def checkpoint(self) -> None:
        """Write a checkpoint now."""
        asyncio.run_coroutine_threadsafe(self.checkpoints.write(), self.loop).result(30)

    def peer(self, token: str | None) -> Peer:
        self._peers.append(Peer(self.url, token))
        return self._peers[-1]

    def enrol(self, **enrolment: Any) -> Peer:
        http = self.peer(self.enrolment_token).http
        return self.peer(_answer(lambda: http.post("/v1/enrol", json=enrolment), 201).json()["token"])

    def close(self) -> None:
        for peer in self._peers:
            peer.http.close()


@contextmanager
def running(
    folder: Path,
    make: Callable[[], Algorithm] = lambda: FedBuff(buffer_size=2, concurrency=4),
    *,
    clients: int = 5,
    plan: LocalPlan = PLAN,
    model: torch.Tensor | None = None,
    layout: Any = LAYOUT,
    lease_seconds: float | None = None,
    max_visit_seconds: float = math.inf,
    max_staleness: int | None = None,
    waits_for_examples: bool = False,
    participation: Participation | None = None,
    **settings: Any,
) -> Generator[Served]:
    """Run a server in a thread of its own."""
    listening: Future[tuple[Listening, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def main() -> None:
        coordinator = Coordinator(
            make(),
            torch.zeros(LENGTH) if model is None else model,
            clients=clients,
            local=plan,
            seed=7,
            lease_seconds=math.inf if lease_seconds is None else lease_seconds,
            max_visit_seconds=max_visit_seconds,
            max_staleness=max_staleness,
            waits_for_examples=waits_for_examples,
            participation=participation,
        )
        defaults = {"port": 0, "requests_a_second": 1e6, "burst": 10**6, "max_share": 1.0}
        values = {"seed": 7, **defaults, **settings}
        keys = {name: values.pop(name) for name in ServiceSettings.model_fields if name in values}
        server = ServerSettings(
            folder=folder, lease_seconds=lease_seconds, service=ServiceSettings.model_construct(**keys), **values
        )
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def ready(server: Listening) -> None:
            listening.set_result((server, loop, stop))

        await serve(server, coordinator, layout, ready=ready, stop=stop)

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(lambda: asyncio.run(main()))
        wait([listening, ended], 30, return_when=FIRST_COMPLETED)
        if ended.done():
            ended.result()
        found, loop, stop = listening.result(0)
        with closing(Served(found, folder, loop)) as served:
            try:
                yield served
            finally:
                loop.call_soon_threadsafe(stop.set)
        ended.result(30)


@pytest.fixture
def server(tmp_path: Path) -> Generator[Served]:
    """A server of FedBuff (K = 2) for five clients and a model of six parameters."""
    with running(tmp_path / "server") as served:
        yield served


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """A server like ``server`` for all tests of a module; each enrols clients of its own."""
    make = lambda: FedBuff(buffer_size=2, concurrency=10_000)  # noqa: E731
    with running(tmp_path_factory.mktemp("shared") / "server", make, clients=10_000) as served:
        yield served
