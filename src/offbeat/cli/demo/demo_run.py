"""A demo: a server and clients, some of which are killed on the way."""

import shutil
import socket
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tomli_w
from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError

from offbeat.cli.demo.processes import FILE_VARIABLE, Processes
from offbeat.data import load_dataset
from offbeat.data.dataset import Dataset, MissingDataError
from offbeat.runs.interruption import InterruptedRunError, Interruption
from offbeat.service.server.admin import live_status

Say = Callable[[str], None]
"""Prints a line for the user."""

Table = Mapping[str, Any]
"""A section of a TOML file."""


class DemoRun:
    """A server and its clients in a folder.

    Args:
        say: Prints the story.
        folder: Holds all files.
        processes: The processes.
        clients: How many clients there are.
        versions: The length of the run.

    Attributes:
        buffer_size: Updates of a version.
    """

    def __init__(self, say: Say, folder: Path, processes: Processes, clients: int, versions: int) -> None:
        self.buffer_size = (clients + 1) // 2
        self._say = say
        self._folder = folder
        self._processes = processes
        self._clients = clients
        self._versions = versions

    def homes(self) -> dict[str, Path]:
        """Return the clients' folders, by client name."""
        return {f"client-{client}": self._folder / "clients" / str(client) for client in range(self._clients)}

    def write_server_file(self, *, data: str, steps: int, service: Table | None = None, **sections: Table) -> None:
        """Write the server's file; ``service`` and ``sections`` are added to it."""
        table = {
            "service": {
                "folder": "server",
                "clients": self._clients,
                "port": free_port(),
                "checkpoint_seconds": 5.0,
                **(service or {}),
            },
            "data": {"name": data},
            "model": {"name": "mlp", "hidden": [64]},
            "local": {"steps": steps, "batch_size": 32, "lr": 0.05},
            "algorithm": {"algorithm": "fedbuff", "buffer_size": self.buffer_size, "concurrency": self._clients},
            "server": {"lease_seconds": 30.0},
            "stop": {"versions": self._versions},
            "evaluate": {"every_versions": self._versions},
            **sections,
        }
        text = f"# The server of a demo, made by: offbeat demo\n{tomli_w.dumps(table)}"
        server_file(self._folder).write_text(text, encoding="utf-8")

    def start(self, name: str, *command: str) -> None:
        """Start a command in a process."""
        self._processes.start(name, *command)

    def start_server(self) -> None:
        """Start the server, and wait until it listens."""
        self.start("server", "server", "start", str(server_file(self._folder)))
        self._until(lambda _: True, "the server does not start")
        self._say(f"The server listens at {self._url()}")

    def join(self, *options: str) -> None:
        """Start the clients, and wait until they have enrolled."""
        server = self._folder / "server"
        trust = ["--token-file", str(server / "enrolment-token"), "--ca", str(server / "tls" / "ca.pem")]
        make = ["--client", "offbeat.cli.demo.client:make_client"]
        homes = self.homes()
        for name, home in homes.items():
            self.start(name, "join", self._url(), *make, *trust, "--folder", str(home), "--name", name, *options)
        is_enrolled = lambda: all((home / "identity.json").exists() for home in homes.values())  # noqa: E731
        self._processes.wait(is_enrolled, "the clients do not enrol")
        self._say(f"{len(homes)} clients have enrolled")

    def kill(self, victims: Sequence[str]) -> None:
        """Kill processes on the way, one after the other, and start each again.

        The last third of the run is undisturbed.
        """
        for number, name in enumerate(victims, start=1):
            due = 2 * self._versions * number // (3 * len(victims))
            now = self._until(lambda now, due=due: now["version"] >= due, f"the run does not reach version {due}")
            self._processes.kill(name)
            self._say(f"Killed {name} at version {now['version']} of {self._versions}, and started it again")
            self._processes.start(name)
            if name == "server":
                now = self._until(lambda _: True, "the server does not start again")
                self._say(f"The server resumes at version {now['version']}")

    def final_status(self) -> dict[str, Any]:
        """Return the server's status once the last version is evaluated."""
        return self._until(lambda now: now["evaluated"] is not None, "the run does not end with an evaluation")

    def _url(self) -> str:
        return (self._folder / "server" / "url").read_text(encoding="ascii").strip()

    def _until(self, is_reached: Callable[[dict[str, Any]], bool], problem: str) -> dict[str, Any]:
        """Wait until the server's status is as wanted; return it."""
        now: dict[str, Any] = {}

        def poll() -> bool:
            with suppress(OffbeatError):  # the server starts, or is too busy to answer
                now.update(live_status(self._folder / "server"))
                return is_reached(now)
            return False

        self._processes.wait(poll, problem)
        return now


def run_demo(
    say: Say,
    folder: Path = Path("runs/demo"),
    *,
    data: str = "fashion-mnist",
    clients: int = 8,
    versions: int = 80,
    steps: int = 100,
) -> None:
    """Run a demo; for folder, processes and signals see ``demo_run``."""
    with demo_run(say, folder, clients, versions) as run:
        dataset = dataset_or_digits(data, say)
        say(f"A server and {clients} clients learn {dataset.name}, each in a process of its own")
        run.write_server_file(data=dataset.name, steps=steps)
        run.start_server()
        run.join()
        run.kill([f"client-{clients // 3}", "server", f"client-{2 * clients // 3}", "server"])
        final = run.final_status()
        say(
            f"{final['counted']} updates counted; they were {final['mean_staleness']:.1f} versions old on average, "
            f"{final['max_staleness']} at most"
        )
        say("Killed: 2 clients, 2 times the server")
        say(accuracy_line(final, dataset))


@contextmanager
def demo_run(say: Say, folder: Path, clients: int, versions: int) -> Generator[DemoRun]:
    """Yield a demo in a folder, from the main thread; all its processes end with it.

    An earlier demo's folder is emptied. Raises ``SystemExit`` after SIGINT or SIGTERM.
    """
    began = time.monotonic()
    # With one thread each, the processes do not slow each other down.
    environment = {FILE_VARIABLE: str(server_file(folder).resolve()), "OMP_NUM_THREADS": "1"}
    try:
        with (
            empty_folder(folder),
            Interruption() as interruption,
            Processes(folder, environment, interruption) as processes,
        ):
            yield DemoRun(say, folder, processes, clients, versions)
    except InterruptedRunError as error:
        raise SystemExit(128 + error.signal) from None
    say(f"{time.monotonic() - began:.0f} seconds; the files of all processes are in {folder}")


@contextmanager
def empty_folder(folder: Path) -> Generator[None]:
    """Lock a folder, and remove the files of an earlier demo."""
    marker = folder / "demo.lock"
    if folder.exists() and not folder.is_dir():
        raise OffbeatError(f"{folder} is a file: choose another folder")
    if folder.exists() and not marker.exists() and any(folder.iterdir()):
        raise OffbeatError(f"{folder} holds something other than a demo: choose another folder")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(marker, blocking=False):
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                elif path != marker:
                    path.unlink()
            yield
    except Timeout:
        raise OffbeatError(f"another demo runs in {folder}: wait for its end, or choose another folder") from None


def server_file(folder: Path) -> Path:
    """Return the path of the server's file."""
    return folder / "server.toml"


def dataset_or_digits(name: str, say: Say) -> Dataset:
    """Return a data set, or the handwritten digits where it is missing."""
    try:
        return load_dataset(name)
    except MissingDataError as error:
        say(f"Handwritten digits instead, because {error}")
        return load_dataset("digits")


def accuracy_line(final: Mapping[str, Any], dataset: Dataset) -> str:
    """Return the line about what the model has learned."""
    return f"Accuracy on {len(dataset.test_labels):,} test examples: {final['evaluated']['accuracy']:.1%}"


def free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]
