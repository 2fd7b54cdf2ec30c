"""A server of several runs in a process of its own, and those who use it while it is killed."""

import random
import secrets
import threading
import time
from pathlib import Path
from typing import Any

import httpx
from offbeat_core.tokens import new_token

from tests.e2e.flapping import FEDBUFF, Flapping
from tests.e2e.server_process import SERVER, Launcher, Server, until

LENGTH = 20
HOST = """
[service]
folder = "server"
port = {port}
tls = false
requests_a_second = 1e6
"""
_OF_THE_SERVER = ("folder =", "port =", "tls =", "requests_a_second =")


class Host(Server):
    """A server of several runs in a process of its own; ``files`` are those of the runs as servers of their own."""

    def __init__(self, launcher: Launcher, folder: Path, clients: int) -> None:
        super().__init__(launcher, folder, "", LENGTH, clients)
        self.files: dict[str, Path] = {}
        self._clients = clients
        self.file.write_text(HOST.format(port=self.port))

    def text(self, run: str, algorithm: str, extra: str = "") -> str:
        """Return the text of a run's file, with further sections, and write it for a server of its own."""
        text = SERVER.format(
            folder=f"server/runs/{run}", port=self.port, algorithm=algorithm, length=LENGTH, clients=self._clients,
            server="lease_seconds = 1.5", checkpoint_seconds=0.2,
        )  # fmt: skip
        self.files[run] = self.file.with_name(f"{run}.toml")
        self.files[run].write_text(text)
        return "\n".join(line for line in text.splitlines() if not line.startswith(_OF_THE_SERVER)) + extra

    def ask(self, method: str, path: str, **options: object) -> httpx.Response:
        """Return the answer to an admin's request; repeat it until there is one."""
        headers = {"Authorization": f"Bearer {self.token('admin')}"}

        def send() -> httpx.Response | None:
            try:
                answer = httpx.request(method, self.url + path, headers=headers, timeout=30, **options)
            except httpx.TransportError:
                return None
            return None if answer.status_code == 503 else answer

        return until(send)

    def counted(self) -> list[int]:
        """Return how many updates have counted in each run."""
        runs = self.ask("GET", "/v1/status").json()["runs"]
        return [run.get("counted") or 0 for run in runs]


class FlappingSite(threading.Thread):
    """A site that comes and goes in all its runs.

    Attributes:
        at: Its part in each run, by name.
    """

    def __init__(self, url: str, token: str, salts: dict[str, int], stop: threading.Event, seed: int) -> None:
        super().__init__(daemon=True)
        self.at: dict[str, Flapping] = {}
        self.root = Flapping(url, token, LENGTH, stop, seed)
        self._url = url
        self._salts = salts
        self._ended = stop
        self._random = random.Random(seed)

    def run(self) -> None:
        try:
            token = self.root.enrol()
            while token is not None and not self._ended.is_set():
                self._turn(token)
        except Exception as error:
            self.root.problems.append(repr(error))
        finally:
            for flapping in (self.root, *self.at.values()):
                flapping.close()

    @property
    def problems(self) -> list[str]:
        return [problem for flapping in (self.root, *self.at.values()) for problem in flapping.problems]

    def _turn(self, token: str) -> None:
        work = self.root.ask("POST", "/v1/work", json={"wait_seconds": self._random.choice([0.0, 0.3, 2.0])})
        if not work or work["run"] is None:
            time.sleep(0.02)
            return
        name = work["run"]
        if name not in self.at:
            url, seed = f"{self._url}/runs/{name}", self._random.randrange(2**32)
            self.at[name] = Flapping(url, token, LENGTH, self._ended, seed, self._salts[name])
            self.at[name].client = work["client"]
        if self.at[name].client != work["client"]:
            self.root.problems.append(f"run {name}: first client {self.at[name].client}, then {work['client']}")
        time.sleep(0.05)
        if self._random.random() < 0.9:  # else it forgets the visit, as after a kill
            self.at[name].turn()


class Operator(threading.Thread):
    """Creates runs, and enrols, labels and revokes sites; all that was acknowledged must stay."""

    def __init__(self, server: Host, most_runs: int, stop: threading.Event, seed: int) -> None:
        super().__init__(daemon=True)
        self.runs: dict[str, int | None] = {}  # the version at which each ends; None for one that was ended
        self.done = 0
        self._server = server
        self._most_runs = most_runs
        self._sites: dict[int, dict[str, Any]] = {}
        self._ended = stop
        self._random = random.Random(seed)
        self._admin = Flapping(server.url, server.token("admin"), 1, stop, seed)

    @property
    def problems(self) -> list[str]:
        return self._admin.problems

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                self._random.choice([self._enrol, self._label, self._revoke, self._create, self._extend, self._end])()
                self.check()
                self.done += 1
                time.sleep(0.03)
        except Exception as error:
            self.problems.append(repr(error))
        finally:
            self._admin.close()

    def create(self, name: str, algorithm: str, labels: list[str], versions: int) -> None:
        """Create a run; a run of that name is the one that it asked for before a kill."""
        text = self._server.text(name, algorithm, f"\n[stop]\nversions = {versions}\n[admission]\nlabels = {labels}\n")
        self._ask("POST", "/v1/runs", {"name": name, "file": text})
        if not self._ended.is_set():
            self.runs[name] = versions

    def token(self, *labels: str) -> str:
        """Return a token for enrolment."""
        return self._ask("POST", "/v1/tokens", {"kind": "enrolment", "labels": labels})["token"]

    def token_of(self, run: str) -> str:
        """Return a token for enrolment with a run itself."""
        return self._ask("POST", f"/runs/{run}/v1/tokens", {"kind": "enrolment"})["token"]

    def check(self) -> None:
        """Compare what the server holds with what it has acknowledged."""
        status, sites = self._ask("GET", "/v1/status"), self._ask("GET", "/v1/sites?limit=1000")
        if status is None or sites is None:
            return
        listed = {run["name"]: run for run in status["runs"]}
        for name, versions in self.runs.items():
            run = listed.get(name)
            if run is None or run["state"] == "failed":
                self.problems.append(f"run {name}: {run}")
            elif versions is None:
                if run["state"] != "over":
                    self.problems.append(f"run {name} was ended: {run}")
            elif run["stop_versions"] is not None and run["stop_versions"] != versions:
                self.problems.append(f"run {name} was extended to {versions}: {run}")
        for number, site in self._sites.items():
            found = sites["sites"][number]
            now = {"labels": found["labels"], "is_revoked": found["revoked"] is not None, "name": found["name"]}
            if now != site:
                self.problems.append(f"site {number}: {site} was acknowledged, not {now}")

    def _enrol(self) -> None:
        labels = self._labels()
        token, own, name = self.token(*labels), new_token("obc_"), secrets.token_hex(8)
        enrolled = self._admin.ask("POST", "/v1/enrol", token=token, json={"name": name, "token": own})
        if enrolled is None:
            return
        if enrolled["client"] in self._sites:
            self.problems.append(f"site {enrolled['client']} has enrolled twice")
        self._sites[enrolled["client"]] = {"labels": labels, "is_revoked": False, "name": name}

    def _label(self) -> None:
        labels = self._labels()
        number = self._change("labels", {"labels": labels})
        if number is not None:
            self._sites[number]["labels"] = labels

    def _revoke(self) -> None:
        number = self._change(None, None)
        if number is not None:
            self._sites[number]["is_revoked"] = True

    def _change(self, what: str | None, body: Any) -> int | None:
        """Change a site; return its number once that is acknowledged."""
        if not self._sites:
            return None
        number = self._random.choice(list(self._sites))
        path = f"/v1/sites/{number}" if what is None else f"/v1/sites/{number}/{what}"
        return None if self._ask("DELETE" if what is None else "POST", path, body) is None else number

    def _create(self) -> None:
        if len(self.runs) < self._most_runs:
            self.create(f"run-{len(self.runs)}", FEDBUFF, self._labels(), 5)

    def _extend(self) -> None:
        name = self._random.choice(list(self.runs))
        versions = self.runs[name]
        if versions is not None and self._ask("POST", f"/runs/{name}/v1/admin/extend", {"versions": versions + 10}):
            self.runs[name] = versions + 10

    def _end(self) -> None:
        name = self._random.choice(list(self.runs))
        if name.startswith("run-") and self._ask("POST", f"/runs/{name}/v1/admin/end", {}) is not None:
            self.runs[name] = None

    def _labels(self) -> list[str]:
        return sorted(self._random.sample(["cpu", "gpu", "eu"], self._random.randrange(3)))

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        return self._admin.ask(method, path, json=body)
