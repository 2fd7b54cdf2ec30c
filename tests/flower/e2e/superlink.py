"""Flower's own programs: a SuperLink, SuperNodes and runs, each in processes of its own."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
WAIT_SECONDS = 540.0


class SuperLink:
    """A SuperLink with SuperNodes, whose output is in a folder."""

    def __init__(self, folder: Path, *more: str) -> None:
        self._folder = folder
        self._port = free_port()
        self._environment = {
            **os.environ,
            "FLWR_HOME": str(folder),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",  # it starts programs of its own by name
            "PYTHONPATH": f"{ROOT}/src{os.pathsep}{ROOT}/packages/client",
        }
        (folder / "config.toml").write_text(f'[superlink.here]\naddress = "{self.address}"\ninsecure = true\n')
        self._started: list[subprocess.Popen[Any]] = []
        self._start(
            "superlink", "--insecure", "--port", str(self._port), "--disable-runtime-dependency-installation", *more
        )
        wait_until(lambda: can_connect(self._port), "the SuperLink listens")

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start_node(self, partition: int) -> subprocess.Popen[Any]:
        own = ["--port", str(free_port()), "--node-config", f"partition-id={partition} num-partitions=3"]
        return self._start("supernode", "--insecure", "--superlink", self.address, *own)

    def _start(self, program: str, *options: str) -> subprocess.Popen[Any]:
        with (self._folder / "output.txt").open("ab") as output:
            process = subprocess.Popen(
                [BIN / f"flower-{program}", *options],
                stdout=output,
                stderr=output,
                env=self._environment,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def run(self, app: Path, **settings: Any) -> None:
        """Start a run of an app."""
        text = " ".join(f'{key.replace("_", "-")}="{value}"' if isinstance(value, str | Path) else
                        f"{key.replace('_', '-')}={value}" for key, value in settings.items())  # fmt: skip
        command = [BIN / "flwr", "run", app, "here", "--run-config", text]
        subprocess.run(command, env=self._environment, check=True, timeout=WAIT_SECONDS)

    def close(self) -> None:
        for process in self._started:
            kill(process)


def kill(process: subprocess.Popen[Any]) -> None:
    """Kill a program and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def wait_until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {WAIT_SECONDS:.0f} s: {what}")
        time.sleep(0.1)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def can_connect(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(folder: Path, *options: str) -> Iterator[SuperLink]:
    folder.mkdir()
    link = SuperLink(folder, *options)
    try:
        yield link
    finally:
        link.close()
