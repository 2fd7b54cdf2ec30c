"""A server of many runs, beside a server with one.

``python benchmarks/many_runs.py [--runs 200] [--active 20] [--clients 50] [--repetitions 5]`` prints JSON: memory and
start-up time of a server with so many runs, of which ``active`` are at work, and small updates (31 kB) a second. The
same number of clients works in turn for the active runs, each for one of them, and for the server with one run. A ratio
is the median of the repetitions. ``sites`` are clients that ask the server in which run there is work, which takes
three requests an update in place of one.
"""

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from service_load import MODEL, SERVER, SMALL, Body, Client, Load, Offbeat, body_of, together

LENGTH = 7_850  # parameters
HOST = """
[service]
folder = "{folder}"
connections_per_address = 20000
port = 0
tls = false
requests_a_second = 1e9
"""
NOT_OF_A_RUN = ("folder", "connections_per_address", "port", "tls", "requests_a_second")


class RunClient(Client):
    """A client of one run of several."""

    prefix = ""

    def send(self, method: str, path: str, value: Any = None, body: Body = b"", **headers: str) -> None:
        """Send a request to the run."""
        super().send(method, self.prefix + path, value, body, **headers)


class Site(RunClient):
    """A client that asks where there is work before each update."""

    def update_any(self, body: memoryview, digest: dict[str, str]) -> None:
        """Find work, get it, and send the update."""
        self.prefix = ""
        run = self.ask("POST", "/v1/work", {"wait_seconds": 60})["run"]
        self.prefix = f"/runs/{run}"
        visit = self._work()
        head = {"version": visit["version"], "bytes": len(body), **digest, "examples": 1, "steps": 1}
        head |= {"model_sha256": visit["model_sha256"], "normaliser": 1.0, "since": visit["since"]}
        self.ask("PUT", f"/v1/uploads/{visit['number']}", body=body, **{"Offbeat-Update": json.dumps(head)})


class Host(Offbeat):
    """A server of several runs; ``start`` it again after ``halt``."""

    def __init__(self, folder: Path, concurrency: int) -> None:
        (folder / "own_model.py").write_text(MODEL)
        keep = folder / "server"
        (folder / "server.toml").write_text(HOST.format(folder=keep))
        text = SERVER.format(folder=keep, length=LENGTH, concurrency=concurrency, tls="false", digest="sha256")
        lines = [line for line in text.splitlines() if line.partition(" ")[0] not in NOT_OF_A_RUN]
        self._text = "\n".join(lines)
        self._home = folder
        self.store = keep
        self.start_seconds = 0.0
        self.start()

    def start(self) -> None:
        """Start it, and note how long that takes."""
        began = time.perf_counter()
        command = [sys.executable, "-m", "offbeat", "server", "start", str(self._home / "server.toml")]
        self._process = subprocess.Popen(
            [*command, "--log-level", "warning"], stdout=subprocess.PIPE, text=True, cwd=self._home
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.start_seconds = time.perf_counter() - began
        host, _, port = line.partition("://")[2].partition(": ")[0].partition(":")
        self._address, self._context = (host, int(port)), None
        self._enrolment = (self.store / "enrolment-token").read_text().strip()
        self.admin_token = (self.store / "admin-token").read_text().strip()

    def halt(self) -> None:
        """Stop it, and keep what it has."""
        self._process.terminate()
        self._process.communicate()

    def own_mib(self) -> float:
        """Return its memory without mapped files."""
        return self.own_memory()[0] / 2**20

    def threads(self) -> int:
        """Return the number of its threads."""
        return int(self.mib_of_each("Threads:")[0] * 1024)

    def admin(self, prefix: str = "") -> RunClient:
        """Return a client with the admin's token."""
        client = RunClient(self.connect(), self.admin_token)
        client.prefix = prefix
        return client

    def create(self, name: str) -> None:
        """Begin a run."""
        self.admin().ask("POST", "/v1/runs", {"name": name, "file": self._text})

    def member(self, run: str) -> RunClient:
        """Return a new client of a run."""
        admin = self.admin(f"/runs/{run}")
        client = RunClient(self.connect(), admin.ask("POST", "/v1/tokens", {"kind": "enrolment"})["token"])
        client.prefix = admin.prefix
        client.token = client.ask("POST", "/v1/enrol", {})["token"]
        return client

    def site(self) -> Site:
        """Return a new site."""
        client = Site(self.connect(), self._enrolment)
        client.token = client.ask("POST", "/v1/enrol", {})["token"]
        return client


def main() -> None:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--active", type=int, default=20)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--times", type=int, default=4, help="updates of a client in a repetition")
    given = parser.parse_args()
    body = body_of(LENGTH)
    assert len(body) <= SMALL
    digest = {"sha256": hashlib.sha256(body).hexdigest()}
    number = given.active * given.clients
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
        host = Host(Path(folder), number)
        facts: dict[str, Any] = {
            "empty_mib": round(host.own_mib()),
            "empty_start_seconds": round(host.start_seconds, 2),
        }
        names = [f"run-{i}" for i in range(given.runs)]
        began = time.perf_counter()
        for name in names[: given.active]:
            host.create(name)
        facts["seconds_to_begin_a_run"] = round((time.perf_counter() - began) / given.active, 3)
        facts["mib_of_an_open_run"] = round((host.own_mib() - facts["empty_mib"]) / given.active, 2)
        for name in names[given.active :]:
            host.create(name)
            host.admin(f"/runs/{name}").ask("POST", "/v1/admin/end", {})
        facts["all_open_mib"], facts["all_open_threads"] = round(host.own_mib()), host.threads()
        time.sleep(6)  # until it has noted which are over
        host.halt()
        host.start()
        facts |= {"runs_mib": round(host.own_mib()), "runs_start_seconds": round(host.start_seconds, 2)}
        began = time.perf_counter()
        single = Offbeat(Path(other), LENGTH, number, tls=False, changes=["service.requests_a_second=1e9"])
        facts["one_run_start_seconds"] = round(time.perf_counter() - began, 2)
        facts["one_run_mib"] = round(single.own_memory()[0] / 2**20)
        works: dict[str, list[Callable[[], object]]] = {
            "one run": [partial(single.enrol().update, body, digest) for _ in range(number)],
            "runs": [partial(host.member(name).update, body, digest) for name in names[: given.active] * given.clients],
            "sites": [partial(host.site().update_any, body, digest) for _ in range(number)],
        }
        servers: dict[str, Offbeat] = {"one run": single, "runs": host, "sites": host}
        rates: dict[str, list[Load]] = {name: [] for name in works}
        for repetition in range(given.repetitions + 1):
            for name, work in works.items():
                load = together(servers[name], work, given.times)
                if repetition:  # the first warms up
                    rates[name].append(load)
        for name, loads in rates.items():
            ratios = [load.per_second / one.per_second for load, one in zip(loads, rates["one run"], strict=True)]
            costs = [1e6 * load.server_cores / load.per_second for load in loads]
            facts[name] = {
                "updates_per_second": round(statistics.median(load.per_second for load in loads)),
                "ratio": round(statistics.median(ratios), 2),
                "spread": [round(min(ratios), 2), round(max(ratios), 2)],
                "server_us_an_update": round(statistics.median(costs)),
            }
        facts["after_mib"] = {"one run": round(single.own_memory()[0] / 2**20), "runs": round(host.own_mib())}
        print(json.dumps(facts, indent=1))
        single.stop()
        host.halt()


if __name__ == "__main__":
    main()
