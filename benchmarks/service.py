"""What the server takes: durable uploads, downloads, idle clients, beside bare sockets that do the same to the disk.

``make bench-service``, or ``python benchmarks/service.py [--quick] [--case NAME]``. It prints a line of JSON a row and
then a table; a figure is the median of five repetitions, and a ratio is to the bare server (``http_servers.py bare``: a
thread a connection, no HTTP, ``fdatasync``), measured in between. Each server is a process of its own; the clients are
threads of this one, whose processor seconds are in the rows too, since they are taken from the same processors.

``large``: updates of 40 MB into FedBuff (K = 10). ``small``: updates of 31 kB over 64 connections, two requests each
(check-in, upload). ``download``: 32 clients at once. ``idle``: 1,000 clients that wait. ``huge``: one update of 2 GB.
"""

import argparse
import hashlib
import http.client
import json
import os
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import http_stacks
import torch

from offbeat.service.update_format import write_dense

LARGE, SMALL, HUGE = 10_000_000, 7_850, 500_000_000  # parameters
SERVER = """
[service]
folder = "{folder}"
clients = 1000
port = 0
tls = {tls}
requests_a_second = 1e9
checkpoint_seconds = 30.0

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
Row = dict[str, Any]


class Offbeat:
    """``offbeat serve``, a process of its own."""

    def __init__(self, folder: Path, length: int, concurrency: int, tls: bool) -> None:
        folder.mkdir()
        (folder / "own_model.py").write_text(MODEL)
        keep = folder / "server"
        text = SERVER.format(folder=keep, length=length, concurrency=concurrency, tls=str(tls).lower())
        (folder / "server.toml").write_text(text)
        command = [sys.executable, "-m", "offbeat", "serve", str(folder / "server.toml")]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self._host, port = line.partition("://")[2].partition(": ")[0].split(":")
        self._port = int(port)
        self._context = ssl.create_default_context(cafile=keep / "tls" / "ca.pem") if tls else None
        self._enrolment = (keep / "enrolment-token").read_text().strip()

    def connect(self) -> http.client.HTTPConnection:
        """Return a new line."""
        if self._context is None:
            return http.client.HTTPConnection(self._host, self._port, blocksize=1 << 20)
        return http.client.HTTPSConnection(self._host, self._port, context=self._context, blocksize=1 << 20)

    def enrol(self) -> "Client":
        """Return a new client."""
        client = Client(self.connect(), self._enrolment)
        client.token = client.ask("POST", "/v1/enrol", {})["token"]
        return client

    def memory_mib(self) -> tuple[float, float]:
        """Return the most memory that the server has had, and what of it is its own and not of mapped files."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        peak, own = (int(status.split(key)[1].split()[0]) / 1024 for key in ("VmHWM:", "RssAnon:"))
        return peak, own

    def cpu_seconds(self) -> float:
        """Return the processor time that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.communicate()


class Client:
    """One client over one line."""

    def __init__(self, line: http.client.HTTPConnection, token: str) -> None:
        self.line = line
        self.token = token
        self._scratch = memoryview(bytearray(1 << 20))

    def ask(self, method: str, path: str, value: Any = None, body: Any = b"", **headers: str) -> Any:
        """Make a request, and return what the answer says."""
        headers = {"Authorization": f"Bearer {self.token}", **headers}
        if value is not None:
            body, headers["Content-Type"] = json.dumps(value).encode(), "application/json"
        self.line.request(method, path, body, headers)
        answer = self.line.getresponse()
        data = answer.read()
        if answer.status >= 300:
            raise ConnectionError(f"{method} {path}: {answer.status} {data[:200]!r}")
        return json.loads(data)

    def update(self, body: memoryview, digest: str) -> None:
        """Get work, and hand in an update at once."""
        visit = self.ask("POST", "/v1/checkin", {"wait_seconds": 60})["visit"]
        head = {"version": visit["version"], "bytes": len(body), "sha256": digest, "examples": 1, "steps": 1}
        head |= {"normaliser": 1.0, "since": visit["since"]}
        self.ask("PUT", f"/v1/uploads/{visit['number']}", body=body, **{"Offbeat-Update": json.dumps(head)})

    def download(self) -> None:
        """Get the first version of the model."""
        self.line.request("GET", "/v1/models/0", headers={"Authorization": f"Bearer {self.token}"})
        answer = self.line.getresponse()
        while answer.readinto(self._scratch):
            continue


def body_of(length: int) -> memoryview:
    """Return an update's body."""
    with tempfile.TemporaryFile() as file:
        write_dense(file, torch.full((length,), 1e-3))
        file.seek(0)
        return memoryview(file.read())


def together(works: Sequence[Callable[[], object]], times: int) -> float:
    """Do each of these in a thread of its own, so many times together; return how many a second were done."""
    tickets = iter(range(times * len(works)))

    def one(work: Callable[[], object]) -> None:
        for _ in tickets:
            work()

    threads = [threading.Thread(target=one, args=(work,)) for work in works]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times * len(works) / (time.perf_counter() - began)


def measure(case: str, connections: int, tls: bool, repetitions: int, folder: Path) -> Row:
    """Return one row."""
    length = SMALL if case == "small" else LARGE
    body, digest = memoryview(b""), ""
    if case != "idle":
        body = body_of(length)
        digest = hashlib.sha256(body).hexdigest()
    server = Offbeat(folder / f"{case}-{connections}-{tls}", length, connections, tls)
    bare = http_stacks.Server("bare", str(folder), str(folder) if tls else None)
    clients = [server.enrol() for _ in range(connections)]
    path = "/model" if case == "download" else "/small" if case == "small" else "/upload"
    works: list[Callable[[], object]]
    if case == "download":
        server.enrol().ask("POST", "/v1/checkin", {})
        works = [client.download for client in clients]
    else:
        works = [partial(client.update, body, digest) for client in clients]
    times = 50 if case == "small" else max(1, 32 // connections)
    together(works, 1)
    rates: list[float] = []
    ratios: list[float] = []
    cpu = time.process_time()
    for _ in range(repetitions):
        beside = http_stacks.crowd(bare, connections, times, http_stacks.exchange(True, path))[0]
        rates.append(together(works, times))
        ratios.append(rates[-1] / beside)
    cpu = time.process_time() - cpu
    peak, own = server.memory_mib()
    bare.kill()
    server.stop()
    rate = statistics.median(rates)
    return {
        "case": case,
        "connections": connections,
        "tls": tls,
        "gb_per_second": round(rate * len(body) / 1e9, 3),
        "updates_per_second": round(rate, 1),
        "spread": [round(min(rates), 1), round(max(rates), 1)],
        "ratio_to_bare": round(statistics.median(ratios), 2),
        "server_rss_mib": round(peak),
        "server_own_mib": round(own),
        "client_cpu_seconds": round(cpu, 1),
    }


def idle(connections: int, folder: Path) -> Row:
    """Return the row of clients that wait for work."""
    server = Offbeat(folder / "idle", SMALL, 1, tls=False)
    server.enrol().ask("POST", "/v1/checkin", {})  # takes the only slot
    clients = [server.enrol() for _ in range(connections - 1)]
    for client in clients:
        headers = {"Authorization": f"Bearer {client.token}", "Content-Type": "application/json"}
        client.line.request("POST", "/v1/checkin", b'{"wait_seconds": 30}', headers)
    time.sleep(2)
    cpu = server.cpu_seconds()
    time.sleep(10)
    share = (server.cpu_seconds() - cpu) / 10
    peak, own = server.memory_mib()
    server.stop()
    row = {"case": "idle", "connections": connections, "tls": False, "core_percent": round(100 * share, 1)}
    return {**row, "server_rss_mib": round(peak), "server_own_mib": round(own)}


def huge(folder: Path) -> Row:
    """Return the row of one update of 2 GB."""
    server = Offbeat(folder / "huge", HUGE, 1, tls=False)
    client = server.enrol()
    before = server.memory_mib()
    body = body_of(HUGE)
    digest = hashlib.sha256(body).hexdigest()
    began = time.perf_counter()
    client.update(body, digest)
    seconds = time.perf_counter() - began
    after = server.memory_mib()
    server.stop()
    row = {"case": "huge", "connections": 1, "tls": False, "gb_per_second": round(len(body) / seconds / 1e9, 3)}
    return {
        **row,
        "updates_per_second": round(1 / seconds, 3),
        "own_mib_before": round(before[1]),
        "own_mib_after": round(after[1]),
    }


CASES: list[tuple[str, int, bool]] = [
    ("large", 8, False),
    ("large", 32, False),
    ("large", 8, True),
    ("small", 64, False),
    ("small", 64, True),
    ("download", 32, False),
    ("download", 32, True),
]


def main() -> None:
    """Print the rows and the table."""
    parser = argparse.ArgumentParser(description="What the server takes.")
    parser.add_argument("--quick", action="store_true", help="once instead of five times, and no 2 GB")
    parser.add_argument("--case", help="large, small, download, idle or huge")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, max(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    rows: list[Row] = []
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="build") as name:
        folder = Path(name).resolve()
        (folder / "model").write_bytes(http_stacks.BODY)
        http_stacks.make_certificate(folder)
        for case, connections, tls in CASES:
            if arguments.case in (None, case):
                rows.append(measure(case, connections, tls, 1 if arguments.quick else 5, folder))
                print(json.dumps(rows[-1]), flush=True)
        if arguments.case in (None, "idle"):
            rows.append(idle(1000, folder))
            print(json.dumps(rows[-1]), flush=True)
        if arguments.case == "huge" or (arguments.case is None and not arguments.quick):
            rows.append(huge(folder))
            print(json.dumps(rows[-1]), flush=True)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    print(f"\n| {' | '.join(keys)} |\n|{' --- |' * len(keys)}")
    for row in rows:
        print(f"| {' | '.join(str(row.get(key, '')) for key in keys)} |")


if __name__ == "__main__":
    main()
