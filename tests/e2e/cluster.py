"""A cluster of real parts, each of which can be killed, put to sleep, or cut off.

They are PostgreSQL, an S3 server, two servers of which one leads, two fronts, and nginx.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from offbeat.service.internal.internal_certificates import make_internal_certificates
from tests import postgres
from tests.e2e.links import Cut, Link, Links
from tests.e2e.nginx import nginx
from tests.e2e.server_process import Launcher, Server, free_port, until
from tests.object_store import ObjectStore, access_to

NAMES = ("one", "two", "three", "four")  # the first two may lead, the others are fronts
SECTIONS = """
[store]
log = "postgresql://offbeat@127.0.0.1:{log}/postgres?sslmode=disable"
blobs = "s3://offbeat/runs"

[fronts]
leaders = {leaders}
host = "127.0.0.1"
port = {port}
ca = "{tls}/ca.pem"
certificate = "{tls}/{name}.pem"
key = "{tls}/{name}.key"
"""
REPLACED = 2
"""The exit code of a server that another one has replaced, or that cannot follow any more: it is started again."""


class Front(Server):
    """A front; ``start`` and ``kill`` as of a server."""

    program = ("server", "front")


def is_ready(url: str) -> bool:
    """Return whether a server answers that leads."""
    try:
        return httpx.get(f"{url}/readyz", timeout=1.0, verify=False).status_code == 200  # loading CAs takes long
    except httpx.TransportError:
        return False


class Cluster:
    """All parts, which run until the end of the ``stack``.

    Args:
        stack: Ends the parts.
        launcher: Starts servers and fronts.
        folder: Where their files are made.
        make: Makes the file of a server or of a front in a folder of its own, with these further sections.

    Attributes:
        url: Where clients find the run.
        log_url: The database's URL for SQLAlchemy, past all links.
    """

    def __init__(
        self,
        stack: ExitStack,
        launcher: Launcher,
        folder: Path,
        make: Callable[[type[Server], Launcher, Path, str], Server],
    ) -> None:
        ports, tls, links = [free_port(), free_port()], folder / "tls", stack.enter_context(Links())
        self._postgres, self.log_url = stack.enter_context(postgres.new_server())
        self.store = stack.enter_context(ObjectStore(Path(stack.enter_context(TemporaryDirectory(prefix="weed"))), 48))
        self._links, self._environments = links, dict[Server, dict[str, str]]()
        self._to_leaders, self._to_log, self._to_store = (dict[Server, list[Link]]() for _ in range(3))
        make_internal_certificates(tls, NAMES[:2], NAMES[2:])
        everybody = list[Server]()
        for number, name in enumerate(NAMES):
            (folder / name).mkdir()
            kind = Server if number < 2 else Front
            to_log = links.to(self._postgres / ".s.PGSQL.5432")
            to_leaders = [links.to(("127.0.0.1", port)) for port in ports]
            to_store = links.to(("127.0.0.1", int(self.store.address.rpartition(":")[2])))
            sections = SECTIONS.format(
                log=to_log.port, leaders=[f"127.0.0.1:{link.port}" for link in to_leaders], port=ports[number % 2],
                tls=tls, name=name,
            )  # fmt: skip
            process = stack.enter_context(make(kind, launcher, folder / name, sections))
            if number:  # the settings name the file of the model, which must be one for all
                (folder / name / "own_model.py").unlink()
                (folder / name / "own_model.py").symlink_to(folder / NAMES[0] / "own_model.py")
            self._environments[process] = access_to(f"http://127.0.0.1:{to_store.port}")
            self._to_leaders[process], self._to_log[process], self._to_store[process] = to_leaders, [to_log], [to_store]
            everybody.append(process)
        self.servers, self.fronts = everybody[:2], everybody[2:]
        self.url = stack.enter_context(nginx(folder, [front.port for front in self.fronts]))
        for process in everybody:
            self.start(process)

    def start(self, process: Server) -> None:
        """Start a server or a front."""
        process.start(environment=self._environments[process])

    def mend(self) -> None:
        """Start servers again that have ended because another one leads, as systemd would."""
        for process in (*self.servers, *self.fronts):
            if process.has_ended():
                code = os.waitstatus_to_exitcode(process.wait())
                assert (code, process in self.servers) == (REPLACED, True), process.log.read_text()[-2000:]
                self.start(process)

    def leader(self) -> Server:
        """Return the server that answers, once one does."""

        def find() -> Server | None:
            self.mend()
            return next((server for server in self.servers if is_ready(server.url)), None)

        return until(find)

    def other(self, server: Server) -> Server:
        """Return the other server."""
        return next(each for each in self.servers if each is not server)

    def kill(self, process: Server) -> None:
        """Send SIGKILL, and start the process again at once."""
        if process.has_ended():
            self.mend()
        assert process.kill() == signal.SIGKILL
        self.start(process)

    def restart(self, process: Server) -> None:
        """Stop a process by SIGTERM, and start it again."""
        assert process.kill(signal.SIGTERM) in (0, signal.SIGTERM)  # it may hardly have begun
        self.start(process)

    def kill_store(self, seconds: float) -> None:
        """Send SIGKILL to the store, and start it again later."""
        self.store.kill()
        time.sleep(seconds)
        self.store.start()

    def restart_log(self, mode: str) -> None:
        """Restart PostgreSQL: ``fast`` ends its sessions, ``immediate`` is as a crash."""
        postgres.run("pg_ctl", "-D", self._postgres / "data", "-m", mode, "-w", "restart")

    def cut_log(self, server: Server, kind: Cut) -> None:
        """Cut a server off from PostgreSQL."""
        self._cut(self._to_log[server], kind)

    def cut_leaders(self, front: Server, kind: Cut) -> None:
        """Cut a front off from the servers."""
        self._cut(self._to_leaders[front], kind)

    def cut_store(self, process: Server, kind: Cut) -> None:
        """Cut a server or a front off from the store."""
        self._cut(self._to_store[process], kind)

    def heal(self) -> None:
        """Heal all links."""
        for links in (self._to_leaders, self._to_log, self._to_store):
            for link in (each for some in links.values() for each in some):
                self._links.wait(link.heal())

    def stop(self) -> Server:
        """Stop all servers and fronts; return the server that led last."""
        last = self.leader()
        for process in (*self.fronts, self.other(last), last):
            assert process.kill(signal.SIGTERM) in (0, signal.SIGTERM)  # it may hardly have begun
        return last

    def _cut(self, links: Iterable[Link], kind: Cut) -> None:
        for link in links:
            self._links.wait(link.cut(kind))
