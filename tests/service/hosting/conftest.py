"""A real server of several runs on a real socket; its runs' files are short JSON, not TOML."""

import asyncio
import json
import math
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from offbeat_core.errors import OffbeatError
from offbeat_core.local_plan import Compression

from offbeat.algorithms import SCAFFOLD, FedAsync, FedAvg, FedBuff
from offbeat.coordinator import Coordinator
from offbeat.coordinator.participation_limits import Participation
from offbeat.service.engine.privacy_status import Budget, PrivacySettings
from offbeat.service.hosting.admission import Admission
from offbeat.service.hosting.hosted_run import HostedRun, Prepare, PreparedRun
from offbeat.service.hosting.hosting import HostListening, HostSettings, host
from offbeat.service.login.login_settings import LoginSettings
from offbeat.service.server_settings import ServerSettings, ServiceSettings
from tests.service.conftest import LAYOUT, LENGTH, PLAN, Peer
from tests.service.http_client import until

ALGORITHMS: dict[str, Callable[[], Any]] = {
    "fedbuff": lambda: FedBuff(buffer_size=2, concurrency=4),
    "one at a time": lambda: FedBuff(buffer_size=1, concurrency=1),
    "fedavg": lambda: FedAvg(cohort=2),
    "fedasync": FedAsync,
    "scaffold": lambda: SCAFFOLD(cohort=1),
}
TOP_K = replace(PLAN, compression=Compression("top_k", (("share", 0.4),)), error_feedback=True)


class Host:
    """A running server of several runs."""

    def __init__(
        self, listening: HostListening, folder: Path, loop: asyncio.AbstractEventLoop, stop: asyncio.Event
    ) -> None:
        self.loop = loop
        self.stop = stop
        self.url = listening.url
        self.folder = folder
        self.service = listening.service
        self.fronts = listening.fronts
        self._peers: list[Peer] = []
        self.admin = self.peer(self.token_in_folder("admin"))

    def peer(self, token: str | None, run: str = "") -> Peer:
        """Return a sender of requests to the server, or to one of its runs."""
        self._peers.append(Peer(f"{self.url}/runs/{run}" if run else self.url, token))
        return self._peers[-1]

    def create(self, name: str, **settings: Any) -> None:
        answer = self.admin.http.post("/v1/runs", json={"name": name, "file": json.dumps(settings)})
        assert answer.status_code == 201, answer.text

    def token(self, kind: str, **limits: Any) -> str:
        answer = self.admin.http.post("/v1/tokens", json={"kind": kind, **limits})
        assert answer.status_code == 201, answer.text
        return answer.json()["token"]

    def enrol(self, name: str = "", *labels: str) -> "Site":
        token = self.token("enrolment", labels=list(labels))
        answer = self.peer(token).http.post("/v1/enrol", json={"name": name})
        assert answer.status_code == 201, answer.text
        return Site(self, answer.json())

    def token_in_folder(self, kind: str) -> str:
        return (self.folder / f"{kind}-token").read_text().strip()

    def run(self, name: str) -> HostedRun:
        """Return a run that answers."""
        return next(run for run in self.service.runs.at_work() if run.name == name)

    def runs(self) -> dict[str, dict[str, Any]]:
        return {run["name"]: run for run in self.admin.http.get("/v1/status").json()["runs"]}

    def fail(self, name: str) -> None:
        """Let a run fail as by a bug."""
        self.loop.call_soon_threadsafe(self.run(name)._end.set, ValueError("planted"))
        until(lambda: self.runs()[name]["state"] == "failed")

    def in_loop(self, work: Callable[[], Any]) -> None:
        """Do work in the server's event loop."""
        done: Future[Any] = Future()
        self.loop.call_soon_threadsafe(lambda: done.set_result(work()))
        done.result(10)

    def close(self) -> None:
        for peer in self._peers:
            peer.http.close()


class Site:
    """A site: it asks where there is work, and does it."""

    def __init__(self, server: Host, enrolled: dict[str, Any]) -> None:
        assert enrolled["has_runs"] is True
        self._server = server
        self.number = enrolled["client"]
        self.token = enrolled["token"]
        self.root = server.peer(self.token)
        self._runs: dict[str, Peer] = {}

    def at(self, run: str) -> Peer:
        if run not in self._runs:
            self._runs[run] = self._server.peer(self.token, run)
        return self._runs[run]

    def at_server(self, server: Host) -> "Site":
        """Return the site as it comes back to a server that was started again."""
        return Site(server, {"has_runs": True, "client": self.number, "token": self.token})

    def find_work(self, wait_seconds: float = 0.0, without: tuple[str, ...] = ()) -> dict[str, Any]:
        body = {"wait_seconds": wait_seconds, "without": list(without)}
        answer = self.root.http.post("/v1/work", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def work(self, value: float = 1.0) -> str | None:
        """Do a visit, if there is work; return the run's name."""
        run = self.find_work()["run"]
        if run is None:
            return None
        visit = self.at(run).check_in()
        assert visit is not None
        assert self.at(run).send(visit, torch.full((LENGTH,), value))["counted"]
        return run


@contextmanager
def hosting(
    folder: Path,
    fronts: int = 0,
    login: LoginSettings | None = None,
    prepare_file: Prepare | None = None,
    **service: Any,
) -> Generator[Host]:
    """Run a server of several runs in a thread of its own; ``prepare_file`` is for runs with files of TOML."""
    listening: Future[tuple[HostListening, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    keys = {"port": 0, "requests_a_second": 1e6, **service}
    settings = ServiceSettings.model_construct(**keys)

    @contextmanager
    def prepare(name: str, text: str) -> Generator[PreparedRun]:
        given: dict[str, Any] = json.loads(text)
        if given.get("algorithm") not in ALGORITHMS:
            raise OffbeatError(f"run {name}: unknown algorithm")
        coordinator = Coordinator(
            ALGORITHMS[given["algorithm"]](),
            torch.zeros(given.get("length", LENGTH)),
            clients=given.get("clients", 3),
            local=TOP_K if given.get("is_compressed") else PLAN,
            seed=7,
            waits_for_examples=given.get("waits_for_examples", False),
            participation=Participation(given.get("clients", 3), limit=100) if "privacy" in given else None,
        )
        privacy = None
        if (section := given.get("privacy")) is not None:
            budget = Budget(given["epsilon_total"], {}) if "epsilon_total" in given else None
            privacy = PrivacySettings(section["noise_multiplier"], section["delta"], budget=budget)
        run = ServiceSettings.model_construct(**keys, seed=7, max_share=1.0)
        yield PreparedRun(
            ServerSettings(
                folder=folder / "runs" / name,
                service=run,
                stop_versions=given.get("versions", math.inf),
                burst=10**6,
                front_processes=fronts,
                config={**given, "algorithm": {"algorithm": given["algorithm"]}},
                privacy=privacy,
            ),
            coordinator,
            [("weight", (given["length"],))] if "length" in given else LAYOUT,
            Admission(frozenset(given.get("labels", ())), frozenset(given.get("names", ()))),
            given.get("requests_a_second"),
        )

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()

        def ready(server: HostListening) -> None:
            listening.set_result((server, loop, stop))

        host_settings = HostSettings(folder=folder, service=settings, login=login, front_processes=fronts)
        await host(host_settings, prepare_file or prepare, ready=ready, stop=stop)

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(lambda: asyncio.run(main()))
        wait([listening, ended], 30, return_when=FIRST_COMPLETED)
        if ended.done():
            ended.result()
        found, loop, stop = listening.result(0)
        server = Host(found, folder, loop, stop)
        try:
            yield server
        finally:
            server.close()
            loop.call_soon_threadsafe(stop.set)
        ended.result(30)


@pytest.fixture
def server(tmp_path: Path) -> Generator[Host]:
    """A server without runs."""
    with hosting(tmp_path / "server") as running:
        yield running
