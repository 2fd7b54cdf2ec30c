"""What happens in a demo: who is started, killed and started again, and when."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from offbeat.cli.demo.demo_processes import Processes, Signals
from offbeat.errors import OffbeatError
from offbeat.service.server.admin import status

_MAKE_CLIENT = "offbeat.cli.demo.demo_client:make_client"
_SERVER = "server"
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 300.0  # without any progress
_GOODBYE_SECONDS = 5.0  # for clients to hear that the run is over
_STOP_SECONDS = 30.0
_LINES = 8  # that say how far the run is


class Story:
    """A server and its clients, from their start to their end.

    Args:
        say: Is told in a line what happens.
        folder: Of the demo; ``server.toml`` is there.
        processes: Where they run.
        signals: That may end it.
        versions: Of the model, until the end.
    """

    def __init__(
        self, say: Callable[[str], None], folder: Path, processes: Processes, signals: Signals, versions: int
    ) -> None:
        self._say = say
        self._folder = folder
        self._processes = processes
        self._signals = signals
        self._versions = versions
        self._version = 0

    def tell(self, clients: int, kills: Sequence[int | None]) -> dict[str, Any]:
        """Run to the end; return the server's last status.

        Args:
            clients: How many.
            kills: Who is killed in turn, at versions that divide the run evenly: a client's number, or None for the
                server.

        Raises:
            OffbeatError: A process failed, or nothing goes on.
            SystemExit: A signal came.
        """
        self._start_server("serve", str(self._folder / "server.toml"))
        self._say(f"The server listens at {self._kept('url')}")
        for client in range(clients):
            self._start_client(client)
        self._until(lambda: all(map(self._has_enrolled, range(clients))), "the clients do not enrol")
        self._say(f"{clients} clients have enrolled")
        for number, who in enumerate(kills, start=1):
            self._reach(self._versions * number // (len(kills) + 2))  # the last third or so is quiet
            if who is None:
                self._kill_server()
            else:
                self._kill_client(who)
        final = self._reach(self._versions)
        # One that still waits for its next attempt to reach the server has nothing to do any more, and is killed.
        self._processes.have_ended([_name(client) for client in range(clients)], _GOODBYE_SECONDS)
        self._processes.stop(_SERVER, _STOP_SECONDS)
        return final

    def _start_server(self, *command: str) -> None:
        self._processes.start(_SERVER, command)
        self._until(lambda: "Listening at" in self._processes.printed(_SERVER), "the server does not start")

    def _start_client(self, client: int) -> None:
        command = ["join", self._kept("url"), "--client", _MAKE_CLIENT, "--name", _name(client)]
        command += [
            "--token-file",
            str(self._folder / "server" / "enrolment-token"),
            "--ca",
            str(self._folder / "server" / "tls" / "ca.pem"),
        ]
        self._processes.start(_name(client), [*command, "--folder", str(self._client_folder(client))])

    def _has_enrolled(self, client: int) -> bool:
        return (self._client_folder(client) / "identity.json").exists()

    def _kill_server(self) -> None:
        self._processes.kill(_SERVER)
        self._say(f"The server was killed at version {self._version}")
        self._start_server()
        self._say(f"It goes on from version {self._reach(0)['version']}")

    def _kill_client(self, client: int) -> None:
        self._processes.kill(_name(client))
        self._say(f"Client {client} was killed at version {self._version}, and is started again")
        self._processes.start(_name(client))

    def _reach(self, version: int) -> dict[str, Any]:
        """Wait for a version; return the status then."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while True:
            with suppress(OffbeatError):  # on a busy machine an answer may take too long
                now = status(self._folder / "server")
                if now["version"] > self._version:
                    end = time.monotonic() + _PATIENCE_SECONDS
                    self._note(now["version"])
                if now["version"] >= version:
                    return now
            self._check(end, f"there is no version after {self._version}")
            time.sleep(_POLL_SECONDS)

    def _note(self, version: int) -> None:
        if version * _LINES // self._versions > self._version * _LINES // self._versions:
            self._say(f"Version {version} of {self._versions}")
        self._version = version

    def _until(self, done: Callable[[], bool], problem: str) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while not done():
            self._check(end, problem)
            time.sleep(_POLL_SECONDS)

    def _check(self, end: float, problem: str) -> None:
        self._signals.check()
        self._processes.check()
        if time.monotonic() > end:
            raise OffbeatError(f"{problem}: see the logs in {self._folder}")

    def _client_folder(self, client: int) -> Path:
        return self._folder / "clients" / str(client)

    def _kept(self, name: str) -> str:
        return (self._folder / "server" / name).read_text(encoding="ascii").strip()


def _name(client: int) -> str:
    return f"client-{client}"
