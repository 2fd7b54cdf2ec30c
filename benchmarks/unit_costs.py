"""The server's unit costs of requests, bodies, rows, versions and clients.

``python benchmarks/unit_costs.py [PART …]`` prints a line for each, the median of five repetitions with the lowest and
the highest; without a part, all (15 minutes, 15 GB of disk). Costs are processor time, user and system, of the process
that is named, since that hardly depends on other programs on the machine; only ``until durable`` is wall-clock time.

``requests``: check-ins, heartbeats and updates of 31 kB, at leader and front. ``bodies``: updates and downloads of 1,
40 and 400 MB. ``versions``: FedBuff's versions of these models, and the sum of updates. ``rows``: appends to SQLite,
and to PostgreSQL where it is installed. ``clients``: memory and disk of clients that are enrolled or wait.
"""

import argparse
import asyncio
import resource
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from offbeat_core.digests import DigestKind, new_digest
from service_load import Client, Offbeat, body_of, seconds_of, together

from offbeat.service.log.log import Row
from offbeat.service.log.open_log import open_log, sqlite_url
from offbeat.service.log.sql_log import SqlLog
from offbeat.service.log.term import Term
from offbeat.service.updates.update_body import StoredUpdate

sys.path.append(str(Path(__file__).parents[1]))
from tests.postgres import run, server_folder, started

REPETITIONS = 5
SMALL = 7_850  # parameters
SIZES = {1: 250_000, 40: 10_000_000, 400: 100_000_000}  # MB: parameters
TIMES = {1: 32, 40: 2, 400: 1}  # updates in a repetition: so few that no checkpoint reads them
NEVER = 1_000_000  # updates in a version, so that none is made
ROWS = 256  # in a repetition
GROUP = 200  # clients in a repetition
ARGUMENTS = '{"now": 1234.5678, "client": 123456, "visit": 1234567, "weight": 1.0, "staleness": 3}'
COLUMNS = ("run", "owner", "name", "arguments", "digest", "blob", "entry", "head")


def show(name: str, values: Sequence[float], unit: str) -> None:
    """Print a cost."""
    low, middle, high = min(values), statistics.median(values), max(values)
    print(f"{name:58}{middle:10,.4g} {unit:16} {low:,.4g} … {high:,.4g}", flush=True)


@contextmanager
def running(
    folder: Path, length: int, concurrency: int, *, tls: bool = False, k: int = NEVER, changes: Sequence[str] = ()
) -> Generator[Offbeat]:
    """Run a server with one front in a process of its own; a version is ``k`` updates."""
    changes = ("service.checkpoint_seconds=1e9", f"algorithm.buffer_size={k}", "service.clients=4000", *changes)
    server = Offbeat(folder, length, concurrency, tls, fronts=1, changes=changes)
    try:
        yield server
    finally:
        server.stop()


def costs(server: Offbeat, work: Callable[[], object], times: int) -> Iterator[tuple[float, float]]:
    """Yield the seconds of leader and front per unit, for each repetition."""
    for _ in range(REPETITIONS):
        leader, front = server.leader_seconds(), server.front_seconds()
        work()
        yield (server.leader_seconds() - leader) / times, (server.front_seconds() - front) / times


def show_both(name: str, found: Iterator[tuple[float, float]]) -> None:
    """Print a request's costs at leader and front."""
    leader, front = zip(*found, strict=True)
    show(f"{name}, leader", [1e6 * seconds for seconds in leader], "µs")
    show(f"{name}, front", [1e6 * seconds for seconds in front], "µs")


def requests(folder: Path) -> None:
    """Print the costs of small requests, with 64 clients at once."""
    for tls in (False, True):
        scheme = "TLS" if tls else "plain"
        for k, name in ((NEVER, "no versions"), (10, "a version every 10")):
            with running(folder, SMALL, 64, k=k, tls=tls) as server:
                clients = [server.enrol() for _ in range(64)]
                body = body_of(SMALL)
                digest = {"sha256": new_digest("sha256")(body).hexdigest()}
                works = [partial(client.update, body, digest) for client in clients]
                together(server, works, 2)
                show_both(f"31 kB update, {scheme}, {name}", costs(server, partial(together, server, works, 20), 1280))
                if k != NEVER:
                    continue
                alone = partial(_repeat, works[0], 100)
                show_both(f"31 kB update, {scheme}, one client", costs(server, alone, 100))
                beats = [client.beat for client in clients]
                show_both(f"heartbeat, {scheme}", costs(server, partial(together, server, beats, 20), 1280))
                idle = [partial(server.enrol().ask, "POST", "/v1/checkin", {}) for _ in range(64)]
                show_both(f"check-in without work, {scheme}", costs(server, partial(together, server, idle, 20), 1280))


def bodies(folder: Path) -> None:
    """Print the costs of large bodies at the front, and of their requests."""
    for size, length in SIZES.items():
        for tls in (False, True):
            kinds: tuple[DigestKind, ...] = ("sha256",) if tls else ("sha256", "blake3")
            for kind in kinds:
                name = f"{size} MB, {kind}, {'TLS' if tls else 'plain'}"
                _measure_bodies(folder, name, size, length, kind, tls=tls)


def _measure_bodies(folder: Path, name: str, size: int, length: int, kind: DigestKind, *, tls: bool) -> None:
    with running(folder, length, 1, tls=tls) as server:
        client, body, times = server.enrol(), body_of(length), TIMES[size]
        digest = {kind: new_digest(kind)(body).hexdigest()}
        client.update(body, digest)
        found = list(costs(server, lambda: _repeat(lambda: client.update(body, digest), times), times))
        show(f"update of {name}, leader", [1e6 * leader for leader, _ in found], "µs")
        show(f"update of {name}, front", [1e3 * front / len(body) * 1e6 for _, front in found], "ms per MB")
        if kind == "sha256":
            found = list(costs(server, lambda: _repeat(client.download, times), times))
            what = f"download of {size} MB, {'TLS' if tls else 'plain'}"
            show(f"{what}, leader", [1e6 * leader for leader, _ in found], "µs")
            show(f"{what}, front", [1e3 * front / len(body) * 1e6 for _, front in found], "ms per MB")


def versions(folder: Path) -> None:
    """Print the leader's costs of a version of one update, and of each further one."""
    for size, length in SIZES.items():
        body = body_of(length)
        digest = {"sha256": new_digest("sha256")(body).hexdigest()}
        with running(folder, length, 1, k=1) as server:
            update = partial(server.enrol().update, body, digest)
            update()
            found = list(costs(server, update, 1))
        show(f"version of {size} MB of one update, leader", [1e3 * leader for leader, _ in found], "ms")
        (folder / "update").write_bytes(body)
        stored = StoredUpdate(folder / "update", len(body), length, None, digest["sha256"])
        total = stored.resolve().clone()
        seconds: list[float] = []
        for _ in range(REPETITIONS):
            began = time.process_time()
            total.add_(stored.resolve(), alpha=0.5)
            seconds.append(time.process_time() - began)
        show(f"further update in a version of {size} MB, leader", [1e3 * each for each in seconds], "ms")


def _repeat(work: Callable[[], object], times: int) -> None:
    for _ in range(times):
        work()


def rows(folder: Path) -> None:
    """Print the cost of a row, alone and in groups, and how long a commit takes."""
    asyncio.run(_append("SQLite", open_log(sqlite_url(folder / "log.sqlite"))))
    with suppress(pytest.skip.Exception), server_folder() as data:  # where PostgreSQL is not installed
        run("initdb", "-D", data / "data", "-A", "trust", "-U", "offbeat")
        with started(data) as url:
            log = open_log(url.replace("+psycopg", ""))
            with log.connected() as connection:
                found = connection.exec_driver_sql("SELECT pid FROM pg_stat_activity").scalars().all()
            asyncio.run(_append("PostgreSQL", log, found))


async def _append(name: str, log: SqlLog, database: Sequence[int] = ()) -> None:
    term = Term(log, "benchmark")
    assert await term.lead()
    for size, group in product((0, 31_400), (1, 8, 64)):
        ours: list[float] = []
        its: list[float] = []
        commits: list[float] = []
        for _ in range(REPETITIONS):
            own, other = time.process_time(), sum(map(seconds_of, database))
            for _ in range(ROWS // group):
                batch = [_row(term, i, size) for i in range(1, group + 1)]
                began = time.perf_counter()
                await term.append(batch)
                commits.append(1e3 * (time.perf_counter() - began))
            ours.append(1e6 * (time.process_time() - own) / ROWS)
            its.append(1e6 * (sum(map(seconds_of, database)) - other) / ROWS)
        what = f"{name}, {group} at once{', each with 31 kB' if size else ''}"
        show(f"row in {what}, leader", ours, "µs")
        if database:
            show(f"row in {what}, database", its, "µs")
        show(f"commit to {what}, until durable", statistics.quantiles(commits, n=4), "ms (quartiles)")
    log.close()


def _row(term: Term, i: int, size: int) -> Row:
    body = bytes(size) if size else None
    return Row(term.number + i, term.epoch, "coordinator", "receive", ARGUMENTS, "a" * 64, body=body)


def clients(folder: Path) -> None:
    """Print memory and disk of a client that is enrolled, and of one that waits."""
    for tls in (False, True):
        growth: list[list[float]] = []
        waiting: list[Client] = []  # which keeps their connections open
        with running(folder, SMALL, 1, tls=tls) as server:
            server.enrol().ask("POST", "/v1/checkin", {})  # takes the only slot
            for _ in range(REPETITIONS + 1):
                before = server.own_memory()
                waiting += (server.enrol() for _ in range(GROUP))
                for client in waiting[-GROUP:]:
                    client.send("POST", "/v1/checkin", {"wait_seconds": 60})
                time.sleep(2)
                growth.append([(new - old) / GROUP for new, old in zip(server.own_memory(), before, strict=True)])
        scheme = "TLS" if tls else "plain"
        for name, values in zip(("leader", "front"), zip(*growth[1:], strict=True), strict=True):
            show(f"client that connects, enrols and waits, {scheme}, {name}", values, "bytes")
    with running(folder, SMALL, 2000, k=10, changes=("service.checkpoint_seconds=1",)) as server:
        body = body_of(SMALL)
        digest = {"sha256": new_digest("sha256")(body).hexdigest()}
        sizes = [(float(server.own_memory()[0]), 0)]
        for _ in range(REPETITIONS + 1):
            together(server, [partial(server.enrol().update, body, digest) for _ in range(GROUP)], 1)
            time.sleep(4)  # for the checkpoint
            newest = max((server.store / "checkpoints").iterdir(), key=lambda path: int(path.stem))
            sizes.append((float(server.own_memory()[0]), newest.stat().st_size))
        count = GROUP * REPETITIONS
        show("client that has taken part, leader", [(sizes[-1][0] - sizes[1][0]) / count], "bytes")
        show("client in a checkpoint", [(sizes[-1][1] - sizes[1][1]) / count], "bytes")
        with closing(sqlite3.connect(f"file:{server.store / 'offbeat.sqlite'}?mode=ro", uri=True)) as database:
            number, length = database.execute(
                f"SELECT count(*), avg({' + '.join(f'ifnull(length({name}), 0)' for name in COLUMNS)}) FROM log "
                "WHERE owner = 'coordinator'"
            ).fetchone()
            (updates,) = database.execute("SELECT count(*) FROM log WHERE digest IS NOT NULL").fetchone()
        show("row, without indexes", [length], "bytes")
        show("rows of a visit", [number / updates], "")


PARTS = {part.__name__: part for part in (requests, bodies, versions, rows, clients)}


def main() -> None:
    """Measure the parts."""
    parser = argparse.ArgumentParser(description="What a request, a row, a version and a client cost.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if left out")
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, max(8192, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    Path("build").mkdir(exist_ok=True)
    for part in parser.parse_args().parts or PARTS:
        with tempfile.TemporaryDirectory(dir="build", ignore_cleanup_errors=True) as name:
            PARTS[part](Path(name).resolve())


if __name__ == "__main__":
    main()
