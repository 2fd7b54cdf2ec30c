"""A server, bad lines to it, and clients, of whom now this one is killed and now that one."""

import random
import signal
import time
from collections import Counter
from pathlib import Path

from tests.e2e.client_processes import ClientProcess
from tests.e2e.flaky_proxy import FlakyProxy
from tests.e2e.server_process import Launcher, Server, until
from tests.e2e.trouble import TROUBLES
from tests.e2e.witness import Moment

VICTIMS = [
    "the server",
    "the server that sends a receipt",
    "the server that sends work",
    "a client",
    "a client that trains",
    "a client that uploads",
    "a client that uploads, for long, and the server",
    "a client that downloads, for long",
    "a client that hears of a receipt",
]


class World:
    """The server, which this starts, and its clients, which train as far as the gate allows."""

    def __init__(
        self, server: Server, proxy: FlakyProxy, launcher: Launcher, folder: Path, clients: int, numbers: random.Random
    ) -> None:
        self.killed: Counter[str] = Counter()
        self._server = server
        self._proxy = proxy
        self._numbers = numbers
        self._gate = folder / "gate"
        self._let_pass(1)
        server.start()
        token = server.token("enrolment")
        self.clients = [
            ClientProcess(launcher, folder / f"client-{number}", url=proxy.url, token=token, gate=str(self._gate))
            for number in range(clients)
        ]

    def kill(self, victim: str) -> None:
        """Kill a process and start it again, while at least one more version is made."""
        version = self._open_the_gate()
        pause = self._numbers.uniform(0.0, 0.3)
        match victim:
            case "the server":
                time.sleep(pause)
                self._server.strike()
                self._start_the_server()
            case "the server that sends a receipt" | "the server that sends work":
                moment = Moment.RECEIPT_SENT if victim.endswith("receipt") else Moment.WORK_SENT
                self._proxy.witness.at(moment, lambda _: self._server.strike())
                self._start_the_server()
            case "a client":
                time.sleep(pause)
                client = self._numbers.choice(self.clients)
                client.strike()
                client.start_again()
            case "a client that trains":
                self._kill_in_training()
            case "a client that uploads":
                self._kill_at(Moment.IN_MID_UPLOAD).start_again()
            case "a client that uploads, for long, and the server":
                client = self._kill_at(Moment.IN_MID_UPLOAD)
                self._server.strike()
                self._start_the_server()
                self._make_a_version()
                client.start_again()
            case "a client that downloads, for long":
                client = self._kill_at(Moment.IN_MID_DOWNLOAD)
                self._make_a_version()
                client.start_again()
            case _:
                self._kill_at(Moment.RECEIPT_HEARD).start_again()
        self.killed[victim] += 1
        until(lambda: self._server.version() > version)

    def let_hearts_beat(self) -> None:
        """Wait until all that can befall a heartbeat has befallen some; all who have work wait at the gate."""
        until(lambda: all(self._proxy.done["heartbeat", trouble] for trouble in TROUBLES))

    def end(self, versions: int) -> None:
        """Let the run go on to its end, and wait until all clients have heard of it, and the server has ended."""
        self._let_pass(versions)
        for client in self.clients:
            assert client.wait() == 0, client.said
        self._proxy.deliver()
        assert self._server.version() >= versions
        assert self._server.kill(signal.SIGTERM) == 0

    def _make_a_version(self) -> None:
        version = self._open_the_gate()
        until(lambda: self._server.version() > version)

    def _open_the_gate(self) -> int:
        """Let the clients make another version; return which is the newest now."""
        version = self._server.version()
        self._let_pass(version + 1)
        return version

    def _let_pass(self, version: int) -> None:
        """Let clients train that begin from earlier versions than this."""
        partial = self._gate.with_suffix(".partial")
        partial.write_text(str(version))
        partial.replace(self._gate)

    def _start_the_server(self) -> None:
        assert self._server.wait() == signal.SIGKILL
        self._server.start()

    def _kill_at(self, moment: Moment) -> ClientProcess:
        number = self._proxy.witness.at(moment, lambda number: self._client(number).strike())
        return self._client(number)

    def _client(self, number: int) -> ClientProcess:
        return next(client for client in self.clients if client.number == number)

    def _kill_in_training(self) -> None:
        was_training = False
        while not was_training:
            client = self._numbers.choice(until(lambda: [client for client in self.clients if client.is_training]))
            client.strike()
            client.wait()
            was_training = client.is_training  # it had not ended just before
            client.start()
