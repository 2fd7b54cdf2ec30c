"""Clients that come and go while a server is killed, and the check of all that it acknowledged."""

import hashlib
import json
import random
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import torch
from offbeat_core.messages import PROTOCOL
from torch import Tensor

from offbeat.coordinator import Receipt
from offbeat.service.server import stopped_server
from tests.e2e.server_process import Server
from tests.e2e.undisturbed import Undisturbed
from tests.service.conftest import body_of

FEDAVG = "algorithm = 'fedavg'\ncohort = 6"
FEDBUFF = "algorithm = 'fedbuff'\nbuffer_size = 3\nconcurrency = 10"
FEDASYNC = "algorithm = 'fedasync'\nconcurrency = 10"


class Flapping(threading.Thread):
    """A client that comes and goes, over a connection that breaks, and keeps its receipts.

    ``salt`` tells its updates from those of another run.
    """

    def __init__(self, url: str, token: str, length: int, stop: threading.Event, seed: int, salt: int = 0) -> None:
        super().__init__(daemon=True)
        self.told: dict[int, Receipt] = {}  # by visit
        self.client = -1
        self.problems: list[str] = []
        self.digests: dict[int, str] = {}  # of the parameters that were downloaded, by version
        self._token = token
        self._length = length
        self._salt = salt
        self._ended = stop
        self._random = random.Random(seed)
        self._http = httpx.Client(base_url=url, headers={"Offbeat-Protocol": PROTOCOL}, timeout=10.0, verify=False)

    def enrol(self) -> str | None:
        """Enrol, and return the client's token."""
        enrolled = self.ask("POST", "/v1/enrol", token=self._token, json={})
        if enrolled is None:
            return None
        self.client, self._token = enrolled["client"], enrolled["token"]
        return self._token

    def run(self) -> None:
        try:
            if self.enrol() is None:
                return
            while not self._ended.is_set():
                self.turn()
        except Exception as error:
            self.problems.append(repr(error))
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def turn(self) -> None:
        """Do a visit, if there is work."""
        answer = self.ask("POST", "/v1/checkin", json={"wait_seconds": self._random.choice([0.0, 0.3])})
        visit = answer and answer["visit"]
        if not visit:
            time.sleep(0.02)
            return
        if self._random.random() < 0.5:
            self._download(self._random.choice(["latest", str(visit["version"])]))
        time.sleep(self._random.choice([0.0, 0.0, 0.05, 0.2]))
        fate = self._random.random()
        if fate < 0.05:
            self.ask("POST", f"/v1/visits/{visit['number']}/give-up")
        elif fate < 0.1:
            time.sleep(2.0)  # longer than its lease
        else:
            self._upload(visit, again=fate > 0.8)

    def _download(self, version: str) -> None:
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            answer = self._http.get(f"/v1/models/{version}", headers=headers, follow_redirects=True)
        except httpx.TransportError:
            return
        if answer.status_code != 200:  # it is stopped, or the version is not kept any more
            return
        begin = 8 + int.from_bytes(answer.content[:8], "little")
        number, digest = int(answer.url.path.rsplit("/", 1)[1]), hashlib.sha256(answer.content[begin:]).hexdigest()
        if self.digests.setdefault(number, digest) != digest:
            self.problems.append(f"version {number} has other parameters than before")

    def _upload(self, visit: dict[str, Any], *, again: bool) -> None:
        number = visit["number"]
        body = body_of(vector_of(self.client, number, self._length, self._salt))
        head = {
            "version": visit["version"],
            "model_sha256": visit["model_sha256"],
            "bytes": len(body),
            "sha256": hashlib.sha256(body).hexdigest(),
            "examples": 1 + self.client,
            "steps": 1,
            "normaliser": 1.0,
            "since": visit["since"],
        }
        pieces = self._random.random() < 0.3
        while not self._ended.is_set():
            state = self.ask("GET", f"/v1/uploads/{number}")
            if state is None:
                return
            if not state["wanted"]:
                self._note(number, state["receipt"])
                return
            offset = state["offset"]
            end = offset + self._random.randrange(1, len(body)) if pieces else len(body)
            headers = {"Offbeat-Update": json.dumps(head), "Upload-Offset": str(offset)}
            answer = self.ask("PUT", f"/v1/uploads/{number}", content=body[offset:end], headers=headers)
            if answer and "receipt" in answer:
                self._note(number, answer["receipt"])
                if not again:
                    return
                again = False

    def _note(self, number: int, receipt: dict[str, Any]) -> None:
        said = Receipt(**receipt)
        if self.told.setdefault(number, said) != said:
            self.problems.append(f"visit {number}: first {self.told[number]}, then {said}")

    def ask(self, method: str, path: str, *, token: str | None = None, headers: Any = None, **what: Any) -> Any:
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
            if "no-such-run" in answer.text:
                self.problems.append(f"{method} {path}: {answer.text}")
            if answer.status_code in (404, 409):  # it is over, or the body went on elsewhere
                return None
            if answer.status_code >= 400:
                self.problems.append(f"{method} {path}: {answer.status_code} {answer.text}")
                return None
            return answer.json() if answer.content else {}
        return None


def check_counts(folder: Path, undisturbed: Undisturbed) -> list[dict[str, Any]]:
    """Check the counts by client in a stopped server's folder against the run that its log describes."""
    listed = stopped_server.clients(folder)
    visits = undisturbed.coordinator.visits
    for row in listed:
        client = row["client"]
        receipts = [receipt for (other, _), receipt in undisturbed.receipts.items() if other == client]
        staleness = [receipt.staleness for receipt in receipts if receipt.counted]
        assert row["visits"] == visits.latest(client) + 1
        assert (row["counted"], row["refused"]) == (len(staleness), len(receipts) - len(staleness))
        assert row["working"] == visits.has_slot(client)
        assert row["lost"] == row["visits"] - len(receipts) - row["working"]
        assert row["mean_staleness"] == (sum(staleness) / len(staleness) if staleness else None)
    statistics = undisturbed.coordinator.statistics
    for name, total in (("visits", statistics.assigned), ("counted", statistics.counted), ("lost", statistics.lost)):
        assert sum(row[name] for row in listed) == total
    return listed


def vector_of(client: int, visit: int, length: int, salt: int = 0) -> Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(10**9 * salt + 1000 * client + visit))


@contextmanager
def flapping(server: Server, length: int, count: int) -> Generator[tuple[list[Flapping], random.Random]]:
    """Start a server and its clients, and stop them; then check that each acknowledged update counts once.

    Yields the clients, and random numbers of a seed that a failing test shows.
    """
    seed = random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")
    numbers = random.Random(seed)
    server.start()
    token, stop = server.token("enrolment"), threading.Event()
    clients = [Flapping(server.url, token, length, stop, numbers.randrange(2**32)) for _ in range(count)]
    for client in clients:
        client.start()
    try:
        yield clients, numbers
    finally:
        stop.set()
        for client in clients:
            client.join(30)
    assert server.kill(signal.SIGTERM) == 0
    assert [problem for client in clients for problem in client.problems] == []
    undisturbed = Undisturbed(server.file, server.folder, lambda c, v, *_: vector_of(c, v, length), body_of)
    check_counts(server.folder, undisturbed)
    undisturbed.check({(client.client, visit): receipt for client in clients for visit, receipt in client.told.items()})
    for client in clients:
        if client.digests:
            undisturbed.check_reads(client.digests)


def acknowledged(clients: list[Flapping]) -> int:
    """Return how many updates the server has acknowledged."""
    return sum(len(client.told) for client in clients)
