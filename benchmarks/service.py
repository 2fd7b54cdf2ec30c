"""The throughput of the server, beside bare sockets with the same disk writes.

Measured are durable uploads, downloads and idle clients. ``make bench-service``, or ``python benchmarks/service.py
[--quick] [--plain] [--case NAME] [--fronts N] [--waiting N] [--peer]``. It prints a line of JSON for every row and
then a table. A figure is the median of five repetitions, and so is a ratio: to the bare server (``http_servers.py
bare``: a thread for every connection, no HTTP, ``fdatasync``), measured in turn with ours. Rows with TLS have a bare
server with TLS, and ``of_plain`` is the rate with TLS as a share of the rate without.

Each server is a process of its own. The clients are threads of this process on the same processors; ``client_cores``
is the number of processors that they keep busy, and ``server_cores`` that of the server. ``server_rss_mib`` and
``server_own_mib`` are the most memory that the server has had since it listened, the second without mapped files,
which the kernel takes back whenever it needs to. ``start_rss_mib`` is the most until it listened,
``own_at_start_mib`` its memory without mapped files at that time.

``large``: updates of 40 MB into FedBuff (K = 10). ``blake3``: the same with that digest. ``ratio_to_hashing`` is the
ratio of both to a bare server that makes the same digest. ``small``: updates of 31 kB. Each is one request, which gets
the next work too. ``download``: a model of 40 MB. ``nginx``: the same by nginx, without TLS. ``idle``: clients that
wait; ``poll_us`` is the processor time of the end of a wait and the next request. ``huge``: one update of 2 GB.
``six``: one round of six clients with a model of 3.2 GB, which takes 36 GB of the disk and has to be asked for;
``--parameters N`` takes another size. ``memory``: eight clients of models of several sizes. ``flower``: Flower's
SuperLink on the work of ``large``, in turn with ours; see ``studies/peers/superlink.py``.
"""

import argparse
import atexit
import hashlib
import json
import resource
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import http_stacks
from nginx import Nginx
from offbeat_core.digests import DigestKind, new_digest
from service_load import Client, Load, Offbeat, Ones, body_of, together

LARGE, SMALL, HUGE = 10_000_000, 7_850, 500_000_000  # parameters
UPDATES = 64  # large ones in a repetition
Row = dict[str, Any]

LARGE_LOADS = [("large", 8), ("large", 32), ("blake3", 8), ("blake3", 32)]
LOADS = [*LARGE_LOADS, ("small", 64), ("small", 1000), ("download", 32), ("nginx", 32)]
SIZES = [10_000, 1_000_000, 10_000_000, 40_000_000]
CASES = ("large", "blake3", "small", "download", "nginx", "idle", "huge", "six", "memory", "flower")


class Setting:
    """A server with its clients, and a bare one beside it."""

    def __init__(self, case: str, connections: int, tls: bool, folder: Path, fronts: int = 0) -> None:
        length = SMALL if case == "small" else LARGE
        kind: DigestKind = "blake3" if case == "blake3" else "sha256"
        self.tls = tls
        self.server = Offbeat(folder, length, connections, tls, fronts, kind)
        self._bare = bare_server(tls, folder)
        self._hashing = bare_server(tls, folder, f"bare-{kind}") if case in ("large", "blake3") else None
        self._connections = connections
        clients = [self.server.enrol() for _ in range(connections)]
        self._nginx = None
        if case == "nginx":
            self._nginx = Nginx(folder / "nginx", self.server.port, self.server.store / "models")
            for client in clients:
                client.line = socket.create_connection(("127.0.0.1", self._nginx.port))
        body = body_of(length)
        self._bytes = len(body)
        path = {"download": "/model", "nginx": "/model", "small": "/small"}.get(case, "/upload")
        self._exchange = http_stacks.exchange(True, path)
        self._works: list[Callable[[], object]]
        if path == "/model":
            self.server.enrol().ask("POST", "/v1/checkin", {})  # the model is there when somebody has work
            self._works = [client.download for client in clients]
        else:
            digest = {kind: new_digest(kind)(body).hexdigest()}
            self._works = [partial(client.update, body, digest) for client in clients]
        self._times = max(1, (3200 if case == "small" else UPDATES) // connections)
        together(self.server, self._works, 1)
        self.loads: list[Load] = []
        self.bare_rates: list[float] = []
        self.hashing_rates: list[float] = []

    def measure(self, bare_first: bool) -> None:
        """Measure once both."""
        for bare in (bare_first, not bare_first):
            if bare:
                rate = http_stacks.crowd(self._bare, self._connections, self._times, self._exchange)[0]
                self.bare_rates.append(rate)
                if self._hashing is not None:
                    rate = http_stacks.crowd(self._hashing, self._connections, self._times, self._exchange)[0]
                    self.hashing_rates.append(rate)
            else:
                self.loads.append(self.load())

    def load(self) -> Load:
        """Measure ours once."""
        return together(self.server, self._works, self._times)

    def row(self) -> Row:
        """Return what was measured."""
        rates = [load.per_second for load in self.loads]
        ratios = [rate / bare for rate, bare in zip(rates, self.bare_rates, strict=True)]
        hashing = [rate / one for rate, one in zip(rates, self.hashing_rates, strict=False)]
        return {
            **({"ratio_to_hashing": round(statistics.median(hashing), 2)} if hashing else {}),
            "gb_per_second": round(statistics.median(rates) * self._bytes / 1e9, 3),
            "updates_per_second": round(statistics.median(rates), 1),
            "ratio_to_bare": round(statistics.median(ratios), 2),
            "spread": [round(min(ratios), 2), round(max(ratios), 2)],
            "model_mib": mib(self._bytes),
            **self.server.memory(),
            "server_cores": round(statistics.median(load.server_cores for load in self.loads), 2),
            "client_cores": round(statistics.median(load.client_cores for load in self.loads), 2),
        }

    def stop(self) -> None:
        """End both servers."""
        self._bare.kill()
        if self._hashing is not None:
            self._hashing.kill()
        if self._nginx is not None:
            self._nginx.stop()
        self.server.stop()


def bare_server(tls: bool, folder: Path, stack: str = "bare") -> http_stacks.Server:
    """Start a bare server."""
    server = http_stacks.Server(stack, str(folder), str(folder) if tls else None)
    atexit.register(server.kill)
    return server


def loads(
    case: str, connections: int, repetitions: int, with_tls: Sequence[bool], folder: Path, fronts: int
) -> Iterator[Row]:
    """Yield the rows without and with TLS."""
    settings = [Setting(case, connections, tls, folder, fronts) for tls in with_tls if case != "nginx" or not tls]
    for repetition in range(repetitions):
        for setting in settings:
            setting.measure(bare_first=not repetition % 2)
    for setting in settings:
        row = {"case": case, "connections": connections, "tls": setting.tls, **setting.row()}
        if setting.tls:
            pairs = zip(setting.loads, settings[0].loads, strict=True)
            row["of_plain"] = round(statistics.median(ours.per_second / plain.per_second for ours, plain in pairs), 2)
        setting.stop()
        yield row


def idle(connections: int, tls: bool, folder: Path, fronts: int) -> Row:
    """Return the row of clients that wait for work, and then ask again in turn."""
    server = Offbeat(folder, SMALL, 1, tls, fronts)
    server.enrol().ask("POST", "/v1/checkin", {})  # takes the only slot
    with ThreadPoolExecutor(32) as pool:
        clients = list(pool.map(lambda _: server.enrol(), range(connections - 1)))
    for number, client in enumerate(clients):
        client.send("POST", "/v1/checkin", {"wait_seconds": 30 + 30 * number / connections})
    time.sleep(2)
    began, cpu = time.perf_counter(), server.cpu_seconds()
    time.sleep(10)
    share = (server.cpu_seconds() - cpu) / (time.perf_counter() - began)
    began, cpu = time.perf_counter(), server.cpu_seconds()
    for client in clients:
        client.receive()
        client.send("POST", "/v1/checkin", {"wait_seconds": 60})
    poll = (server.cpu_seconds() - cpu - share * (time.perf_counter() - began)) / len(clients)
    row: Row = {"case": "idle", "connections": connections, "tls": tls, "core_percent": round(100 * share, 1)}
    row["poll_us"] = round(1e6 * poll)
    row |= {"model_mib": mib(4 * SMALL), **server.memory()}
    row["rss_mib_of_each"] = [round(size) for size in server.mib_of_each("VmRSS:")]
    server.stop()
    return row


def huge(tls: bool, folder: Path) -> Row:
    """Return the row of one update of 2 GB."""
    server = Offbeat(folder, HUGE, 1, tls)
    body = body_of(HUGE)
    digest = {"sha256": hashlib.sha256(body).hexdigest()}
    client = server.enrol()
    load = together(server, [lambda: client.update(body, digest)], 1)

    def exchange(line: socket.socket, scratch: memoryview) -> None:
        line.sendall(len(body).to_bytes(8, "little"))
        line.sendall(body)
        http_stacks.skip(line, 4, scratch)

    bare = bare_server(tls, folder)
    bare_rate = http_stacks.crowd(bare, 1, 2, exchange)[0]
    bare.kill()
    row = {"case": "huge", "connections": 1, "tls": tls}
    row |= {"gb_per_second": round(load.per_second * len(body) / 1e9, 3)}
    row |= {"updates_per_second": round(load.per_second, 3), "ratio_to_bare": round(load.per_second / bare_rate, 2)}
    row |= {"model_mib": mib(len(body)), **server.memory()}
    row |= {"server_cores": round(load.server_cores, 2), "client_cores": round(load.client_cores, 2)}
    server.stop()
    return row


def six(length: int, folder: Path) -> Row:
    """Return the row of one round of six clients with a large model.

    Each downloads the model and uploads an update; the row's time ends with the next version.
    """
    changes = ("algorithm.buffer_size=6", "service.checkpoint_seconds=86400")
    server = Offbeat(folder, length, 6, tls=False, changes=changes)
    body = Ones(length)
    clients = [server.enrol() for _ in range(6)]

    def take_part(client: Client) -> None:
        client.check_in()
        client.download()
        client.update(body, {"sha256": body.sha256})

    began = time.perf_counter()
    load = together(server, [partial(take_part, client) for client in clients], 1)
    while not clients[0].check_in():
        pass
    row = {"case": "six", "connections": 6, "tls": False, "seconds": round(time.perf_counter() - began, 1)}
    row |= {"model_mib": mib(len(body)), **server.memory()}
    row |= {"server_cores": round(load.server_cores, 2), "client_cores": round(load.client_cores, 2)}
    server.stop(at_once=True)  # a last checkpoint would take more of the disk
    return row


def memory(length: int, folder: Path) -> Row:
    """Return the row of some updates of a model."""
    body = body_of(length)
    digest = {"sha256": hashlib.sha256(body).hexdigest()}
    server = Offbeat(folder, length, 8, tls=False)
    clients: list[Client] = [server.enrol() for _ in range(8)]
    together(server, [partial(client.update, body, digest) for client in clients], 8)
    row = {"case": "memory", "connections": 8, "tls": False, "model_mib": mib(len(body))}
    row |= server.memory()
    server.stop()
    return row


def mib(size: int) -> float:
    """Return a size in bytes in MiB."""
    return round(size / 2**20, 2)


def rows_of(arguments: argparse.Namespace, folder: Path) -> Iterator[Row]:
    """Yield the rows of a case, or of all."""
    case, repetitions = arguments.case, 1 if arguments.quick else 5
    with_tls = (False,) if arguments.plain else (False, True)
    for name, connections in LOADS:
        if case in (None, name):
            yield from loads(name, connections, repetitions, with_tls, folder, arguments.fronts)
    for tls in with_tls:
        if case in (None, "idle"):
            yield idle(arguments.waiting, tls, folder, arguments.fronts)
    for tls in with_tls:
        if case == "huge" or (case is None and not arguments.quick):
            try:
                yield huge(tls, folder)
            except ChildProcessError as error:  # there may be too little memory for it
                print(f"huge: left out: {error}", file=sys.stderr)
    if case == "six":
        yield six(arguments.parameters, folder)
    for length in SIZES:
        if case in (None, "memory"):
            yield memory(length, folder)
    if case == "flower" or arguments.peer:
        sys.path.append(str(Path(__file__).parents[1] / "studies"))
        from peers import superlink

        yield from superlink.rows(repetitions, lambda connections: Setting("large", connections, False, folder))


def main() -> None:
    """Print the rows and the table."""
    parser = argparse.ArgumentParser(description="What the server takes.")
    parser.add_argument("--quick", action="store_true", help="once instead of five times, and no 2 GB")
    parser.add_argument("--plain", action="store_true", help="without TLS")
    parser.add_argument("--case", choices=CASES, help="only this one")
    parser.add_argument(
        "--fronts", type=int, default=0, help="processes that serve clients, for loads and idle clients"
    )
    parser.add_argument("--waiting", type=int, default=1000, help="how many clients wait in the case idle")
    parser.add_argument("--parameters", type=int, default=800_000_000, help="of the model in the case six")
    parser.add_argument("--peer", action="store_true", help="Flower's SuperLink too: 300 MB in build/peers")
    arguments = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    found: list[Row] = []
    Path("build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir="build", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        (folder / "model").write_bytes(http_stacks.BODY)
        http_stacks.make_certificate(folder)
        for row in rows_of(arguments, folder):
            found.append(row)
            print(json.dumps(row), flush=True)
    keys = list(dict.fromkeys(key for row in found for key in row))
    print(f"\n| {' | '.join(keys)} |\n|{' --- |' * len(keys)}")
    for row in found:
        print(f"| {' | '.join(str(row.get(key, '')) for key in keys)} |")


if __name__ == "__main__":
    main()
