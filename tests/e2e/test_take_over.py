"""Servers that share a log in PostgreSQL: whichever dies or sleeps, another leads, and each update counts once.

``OFFBEAT_TAKE_OVERS`` says how often; ``make torture-cluster`` does 100.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.e2e.balancer import Balancer
from tests.e2e.cluster import is_ready
from tests.e2e.flapping import FEDAVG, FEDBUFF, Flapping, acknowledged, vector_of
from tests.e2e.server_process import Launcher, Server, until
from tests.e2e.undisturbed import Undisturbed
from tests.object_store import access_to
from tests.object_store import object_store as object_store
from tests.postgres import postgres as postgres
from tests.service.conftest import body_of

TAKE_OVERS = int(os.environ.get("OFFBEAT_TAKE_OVERS", "2"))
CLIENTS = 8
STORE = '[store]\nlog = "{log}"\nblobs = "{blobs}"\n'


@pytest.fixture
def database(postgres: str) -> Generator[str]:
    """The URL of a new database."""
    engine = sa.create_engine(postgres, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE run")
    yield postgres.replace("+psycopg", "").replace("/postgres?", "/run?")
    with engine.connect() as connection:
        connection.exec_driver_sql("DROP DATABASE run WITH (FORCE)")
    engine.dispose()


def rows_of(url: str) -> list[tuple[int, str, str, str, str | None]]:
    engine = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
    with engine.connect() as connection:
        query = sa.text("SELECT number, owner, name, arguments, digest FROM log ORDER BY number")
        found = [tuple(row) for row in connection.execute(query)]
        epochs = connection.execute(sa.text("SELECT epoch FROM log ORDER BY number")).scalars().all()
    engine.dispose()
    assert epochs == sorted(epochs), "a row of an old epoch lies behind one of a new epoch"
    return found  # pyright: ignore[reportReturnType]


def check_nothing_lost(clients: Sequence[Flapping], last: Server, database: str, length: int) -> None:
    """Compare what clients were told and have read with an undisturbed server that gets the log of the ``last`` one."""
    assert [problem for client in clients for problem in client.problems] == []
    undisturbed = Undisturbed(
        last.file, last.folder, lambda c, v, *_: vector_of(c, v, length), body_of, rows=rows_of(database)
    )
    undisturbed.check({(client.client, visit): receipt for client in clients for visit, receipt in client.told.items()})
    for client in clients:
        if client.digests:
            undisturbed.check_reads(client.digests)


class Pair:
    """Two servers of one run behind a balancer, with their clients."""

    def __init__(self, stack: ExitStack, launcher: Launcher, folder: Path, store: str, algorithm: str, length: int):
        self.servers: list[Server] = []
        for name in ("one", "two"):
            (folder / name).mkdir()
            server = Server(launcher, folder / name, algorithm, length, CLIENTS, extra=store)
            self.servers.append(stack.enter_context(server))
        # The settings name the file of the model, which must be one for both.
        (folder / "two" / "own_model.py").unlink()
        (folder / "two" / "own_model.py").symlink_to(folder / "one" / "own_model.py")
        self.balancer = stack.enter_context(Balancer([server.port for server in self.servers]))

    def leader(self) -> Server:
        """Return the one that answers, once one does."""
        return until(lambda: next((server for server in self.servers if is_ready(server.url)), None))


@pytest.mark.skipif(os.name == "nt", reason="sends signals")
@pytest.mark.parametrize(
    ("algorithm", "length", "kind"),
    [
        pytest.param(
            FEDBUFF, 20, "folder", id="small", marks=pytest.mark.long
        ),  # rounds of test_cluster_rounds.py have small ones
        pytest.param(FEDAVG, 50_000, "folder", id="large", marks=pytest.mark.long),
        pytest.param(FEDAVG, 50_000, "objects", id="objects"),
    ],
)
def test_whichever_server_dies_or_sleeps_nothing_is_lost_or_counted_twice(
    algorithm: str,
    length: int,
    kind: str,
    database: str,
    launcher: Launcher,
    tmp_path: Path,
    say: Callable[[str], None],
    request: pytest.FixtureRequest,
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"random numbers from seed {seed}")
    numbers, stop, seconds = random.Random(seed), threading.Event(), list[float]()
    blobs, environment = f"file://{tmp_path}/blobs", dict[str, str]()
    if kind == "objects":
        blobs, environment = "s3://offbeat/runs", access_to(request.getfixturevalue("object_store"))
    store = STORE.format(log=database, blobs=blobs)
    with ExitStack() as stack:
        pair = Pair(stack, launcher, tmp_path, store, algorithm, length)
        for server in pair.servers:
            server.start(environment=environment)
        first = pair.leader()
        clients = [
            Flapping(pair.balancer.url, first.token("enrolment"), length, stop, numbers.randrange(2**32))
            for _ in range(CLIENTS)
        ]
        for client in clients:
            client.start()
        try:
            for number in range(TAKE_OVERS):
                before = acknowledged(clients)
                until(lambda: acknowledged(clients) > before)  # noqa: B023
                time.sleep(numbers.uniform(0.05, 0.5))
                leader = pair.leader()
                other = next(server for server in pair.servers if server is not leader)
                began = time.monotonic()
                sleeps = number % 2 == 1
                leader.strike(signal.SIGSTOP if sleeps else signal.SIGKILL)
                until(lambda: is_ready(other.url))  # noqa: B023
                seconds.append(time.monotonic() - began)
                if sleeps:
                    leader.strike(signal.SIGCONT)
                    assert os.waitstatus_to_exitcode(leader.wait()) == 2
                    assert "another server leads now" in leader.log.read_text()
                else:
                    assert leader.wait() == signal.SIGKILL
                leader.start(environment=environment)
            before = acknowledged(clients)
            until(lambda: acknowledged(clients) > before)
        finally:
            stop.set()
            for client in clients:
                client.join(30)
        last = pair.leader()
        for server in pair.servers:
            if server is not last:
                assert server.kill(signal.SIGTERM) in (0, signal.SIGTERM)  # it may hardly have begun
        assert last.kill(signal.SIGTERM) == 0
    check_nothing_lost(clients, last, database, length)
    shown = ", ".join(f"{each:.1f}" for each in sorted(seconds))
    say(f"{TAKE_OVERS} take-overs, {acknowledged(clients)} updates acknowledged; seconds to the first answer: {shown}")
