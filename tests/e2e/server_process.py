"""A server in a process of its own, to be killed and started again."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

T = TypeVar("T")

MODEL = """
from torch import nn
def make(inputs):
    return nn.Linear(inputs, 1, bias=False)
"""
SERVER = """
[service]
folder = "{folder}"
clients = {clients}
port = {port}
tls = false
checkpoint_seconds = {checkpoint_seconds}
requests_a_second = 1e6

[model]
name = "own_model.py:make"
arguments = {{ inputs = {length} }}

[local]
steps = 1
batch_size = 1
lr = 0.1

[algorithm]
{algorithm}

[server]
{server}
"""


class Launcher:
    """The program that starts processes; at the end of the context it leaves none."""

    def __init__(self) -> None:
        self._command = [sys.executable, str(Path(__file__).with_name("launcher_program.py"))]

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def tell(self, request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


class Server:
    """A server with a file and a folder, which is started and killed; it runs within the context at most.

    ``algorithm`` has the lines of ``[algorithm]``, ``length`` is the number of parameters; ``versions`` ends the run,
    ``extra`` are further sections.
    """

    program = ("server", "start")

    def __init__(
        self,
        launcher: Launcher,
        folder: Path,
        algorithm: str,
        length: int,
        clients: int,
        versions: int | None = None,
        checkpoint_seconds: float = 0.2,
        extra: str = "",
    ) -> None:
        (folder / "own_model.py").write_text(MODEL)
        self.file = folder / "server.toml"
        self.folder = folder / "server"
        self.log = folder / "server.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        text = SERVER.format(
            folder="server", port=self.port, algorithm=algorithm, length=length, clients=clients,
            server="lease_seconds = 1.5", checkpoint_seconds=checkpoint_seconds,
        )  # fmt: skip
        text += extra
        self.file.write_text(text if versions is None else f"{text}\n[stop]\nversions = {versions}\n")
        self._launcher = launcher
        self._process: int | None = None
        self._http = httpx.Client(base_url=self.url, timeout=30.0, verify=False)  # loading CAs takes long

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        if self._process is not None:
            self.kill()

    def start(self, **limits: Any) -> None:
        folder = str(self.file.parent)
        command = {"command": [*self.program, str(self.file)], "folder": folder, "output": str(self.log), **limits}
        self._process = self._launcher.tell(command)

    @property
    def process(self) -> int:
        """The number of the server's process."""
        assert self._process is not None
        return self._process

    def has_ended(self) -> bool:
        """Return whether the server has ended by itself."""
        status = Path(f"/proc/{self.process}/stat").read_text()
        return status.rpartition(")")[2].split()[0] == "Z"

    def strike(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal."""
        os.kill(self.process, number)

    def wait(self) -> int:
        """Wait for the server's end, and return how it ended."""
        process, self._process = self.process, None
        return until(lambda: self._launcher.tell({"ended": process}))[0]

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal, and return how the server ended."""
        self.strike(number)
        return self.wait()

    def token(self, kind: str) -> str:
        """Return the token that the server has put into its folder, once it is there."""
        path = self.folder / f"{kind}-token"
        until(lambda: path.exists() and path.read_text().endswith("\n"))
        return path.read_text().strip()

    def version(self) -> int:
        """Return the newest version of the model, once there is a server to say so."""

        def ask() -> dict[str, Any] | None:
            headers = {"Authorization": f"Bearer {self.token('admin')}"}
            with suppress(httpx.TransportError):
                answer = self._http.get("/v1/status", headers=headers)
                assert answer.status_code == 200, answer.text
                return answer.json()
            return None

        return until(ask)["version"]


def until(condition: Callable[[], T | None], seconds: float = 120.0) -> T:
    """Return what a condition says once it says something."""
    end = time.monotonic() + seconds
    while not (said := condition()):
        assert time.monotonic() < end, "that takes too long"
        time.sleep(0.02)
    return said


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]
