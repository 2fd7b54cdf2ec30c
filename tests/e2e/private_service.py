"""A private service: server, helper and clients, each of which is killed and started again."""

import json
import os
import re
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from offbeat_client.private_updates import public_key
from offbeat_core.errors import OffbeatError
from offbeat_core.files import read_table
from offbeat_private.helper.roster import enrol, parse_roster
from offbeat_private.masks.signing_key import public_bytes
from safetensors.numpy import load_file

from offbeat.service.server.admin import live_status
from tests.e2e.server_process import Launcher, free_port, until

CLIENTS = 4
_CLIENT = Path(__file__).with_name("private_client.py")
SECONDS = 240.0  # for the next version, on a busy machine
# The step of these terms is that of the client's updates.
AGREED = """
min_clients = {least}
clip_norm = 0.9921875
max_participations = 1000000
bits = 8
"""
ROSTER = """
[terms]
length = 4
buffer = 5
payload = "{payload}"
noise_multiplier = 0.0
delta = 1e-5
{agreed}
[local]
steps = 1
most_steps = 3
batch_size = 1
lr = 0.1
[clients]
{clients}
"""
SERVER = """
[service]
folder = "server"
clients = {places}
port = {port}
helper_terms = "{home}/helper/terms.json"
helper_token_file = "{home}/token"
helper_ca = "{home}/helper/tls/ca.pem"
tls = {tls}
checkpoint_seconds = 1.0
requests_a_second = 1e6
[model]
name = "own_model.py:net"
[local]
steps = 1
batch_size = 1
lr = 0.1
[privacy]
helper = "https://127.0.0.1:{helper_port}"
{agreed}
[algorithm]
{algorithm}
"""
NET = """
from torch import nn
def net():
    layer = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(layer.weight)
    return layer
"""


class Command:
    """A command of ``offbeat`` that can be killed and started again; its output goes into ``NAME.log``."""

    def __init__(self, launcher: Launcher, folder: Path, name: str, *arguments: str) -> None:
        self.log = folder / f"{name}.log"
        self.log.touch()
        self._launcher = launcher
        self._request = {"command": arguments, "folder": str(folder), "output": str(self.log)}
        self.start()

    def start(self) -> None:
        self._process = self._launcher.tell(self._request)

    def ended(self) -> list[int] | None:
        """Return how it ended; None if it has not."""
        return self._launcher.tell({"ended": self._process})

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        os.kill(self._process, number)
        how = until(self.ended, SECONDS)[0]
        assert how == (number if number == signal.SIGKILL else 0), self.log.read_text()


class PrivateService:
    """The processes and their files.

    Args:
        launcher: Starts processes.
        folder: Where their files are made.
        algorithm: The lines of ``[algorithm]``.
        least: The fewest clients of a sum.
        places: Clients that the server expects; four come.
        payload: What clients send.

    Attributes:
        killed: How many processes were killed, by kind.
    """

    def __init__(
        self, launcher: Launcher, folder: Path, algorithm: str, *, least: int, places: int, payload: str
    ) -> None:
        self.killed: Counter[str] = Counter()
        self._folder = folder
        agreed = AGREED.format(least=least)
        keys = [public_key(folder / f"client-{which}") for which in range(CLIENTS)]
        names = "\n".join(f'client-{which} = "{key}"' for which, key in enumerate(keys))
        roster = folder / "roster.toml"
        roster.write_text(ROSTER.format(payload=payload, agreed=agreed, clients=names))
        enrolled = enrol(parse_roster(read_table(roster), roster), folder / "helper", ["127.0.0.1"])
        (folder / "token").write_text(enrolled.token)
        helper_port = free_port()
        self._launcher = launcher
        self.helper = self._start("helper", "helper", "serve", "--folder", "helper", "--port", str(helper_port))
        join = self._serve(
            partial(
                SERVER.format, home=folder, agreed=agreed, algorithm=algorithm, helper_port=helper_port, places=places
            )
        )
        until(lambda: self._status() is not None, SECONDS)
        self.clients = [
            self._start(
                f"client-{which}", "join", *join, "--client", f"{_CLIENT}:make_client", "--folder", f"client-{which}",
                "--name", f"client-{which}", "--terms", "helper/terms.json",
            )
            for which in range(CLIENTS)
        ]  # fmt: skip
        homes = [folder / f"client-{which}" for which in range(CLIENTS)]
        until(lambda: all((home / "identity.json").exists() for home in homes), SECONDS)

    def _start(self, name: str, *arguments: str) -> Command:
        return Command(self._launcher, self._folder, name, *arguments)

    def _serve(self, settings: Callable[..., str]) -> list[str]:
        """Start the server; return the address, the token and the certificate with which clients join."""
        port = free_port()
        (self._folder / "own_model.py").write_text(NET)
        (self._folder / "server.toml").write_text(settings(port=port, tls="true"))
        self._server = self._start("server", "server", "start", "server.toml")
        url, home = f"https://127.0.0.1:{port}", self._folder / "server"
        return [url, "--token-file", f"{home}/enrolment-token", "--ca", f"{home}/tls/ca.pem"]

    def kill(self, random: Random) -> None:
        """Kill server, helper and a client, in any order, and let them make another version."""
        version = self.version()
        victims = [("server", self._server), ("helper", self.helper), ("client", random.choice(self.clients))]
        for kind, victim in random.sample(victims, len(victims)):
            time.sleep(random.uniform(0.0, 0.7))
            victim.kill()
            victim.start()
            self.killed[kind] += 1
        until(lambda: self.version() > version, SECONDS)

    def end(self) -> dict[str, Any]:
        """Kill the clients, let the server open the last sum, and return its status."""
        for client in self.clients:
            client.kill()
        final = until(self._settled, SECONDS)
        self._stop()
        self.helper.kill(signal.SIGTERM)
        return final

    def _stop(self) -> None:
        """Stop the server."""
        self._server.kill(signal.SIGTERM)

    def _settled(self) -> dict[str, Any] | None:
        """Return the status if no sum waits, and none was made for a second (five periods)."""
        before = self._status()
        time.sleep(1.0)
        now = self._status()
        is_settled = before and now and now["privacy"]["sums_waiting"] == 0 and now["version"] == before["version"]
        return now if is_settled else None

    def version(self) -> int:
        """Return the newest version on the server's disk."""
        models = (self._server_folder() / "models").glob("[0-9]*.safetensors")
        return max((int(path.stem) for path in models), default=0)

    def _server_folder(self) -> Path:
        return self._folder / "server"

    def sums(self) -> list[list[tuple[int, int]]]:
        """Return client and visit of each update in the sums that the helper has opened.

        The helper knows the clients of a sum; a client's updates are in sums in the order of the server's log.
        """
        with closing(sqlite3.connect(self._folder / "helper" / "helper.sqlite")) as database:
            rows = database.execute("SELECT batch, client, hash FROM seeds ORDER BY batch").fetchall()
        assert len({seed for *_, seed in rows}) == len(rows)
        received = {client: iter(visits) for client, visits in self.received().items()}
        clients = {public_bytes(public_key(home)): number for home, number in self._numbers().items()}
        sums: dict[int, list[tuple[int, int]]] = {}
        for batch, key, _ in rows:
            sums.setdefault(batch, []).append((clients[key], next(received[clients[key]])))
        assert list(sums) == list(range(1, len(sums) + 1))
        return list(sums.values())

    def received(self) -> dict[int, list[int]]:
        """Return the visits of each client whose updates are in the server's log."""
        received: dict[int, list[int]] = {number: [] for number in self._numbers().values()}
        for text in self._receipts():
            arguments = json.loads(text)
            received[arguments["client"]].append(arguments["visit"])
        return received

    def _receipts(self) -> list[str]:
        """Return the arguments of the log's rows of updates."""
        with closing(sqlite3.connect(self._folder / "server" / "offbeat.sqlite")) as database:
            rows = database.execute("SELECT arguments FROM log WHERE name = 'receive' ORDER BY number").fetchall()
        return [text for (text,) in rows]

    def acknowledged(self) -> dict[int, list[int]]:
        """Return the visits of each client of which it has logged the receipt that they count."""
        return {
            number: [int(visit) for visit in re.findall(r"visit (\d+): counted\b", log, re.MULTILINE)]
            for home, number in self._numbers().items()
            if (log := home.with_suffix(".log").read_text())
        }

    def model(self) -> list[float]:
        """Return the parameters of the newest version."""
        path = self._server_folder() / "models" / f"{self.version()}.safetensors"
        return load_file(path)["weight"][0].tolist()

    def _numbers(self) -> dict[Path, int]:
        """Return the clients' folders and their numbers at the server."""
        homes = [self._folder / f"client-{which}" for which in range(CLIENTS)]
        return {home: json.loads((home / "identity.json").read_text())["client"] for home in homes}

    def _status(self) -> dict[str, Any] | None:
        with suppress(OffbeatError):  # the server starts
            return live_status(self._folder / "server")
        return None
