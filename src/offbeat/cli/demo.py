"""``offbeat demo``: a server and clients, some of which are killed on the way."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout

from offbeat.config.server_file import load
from offbeat.data import load_dataset
from offbeat.data.dataset import Dataset, MissingDataError
from offbeat.errors import OffbeatError
from offbeat.inputs import map_inputs
from offbeat.population import partition
from offbeat.runs.interruption import InterruptedRunError, Interruption
from offbeat.service.client import LocalSGD
from offbeat.service.server.admin import status
from offbeat.training.objectives import LOSSES
from offbeat.worlds.workload import build_dataset, build_model

_FILE_VARIABLE = "OFFBEAT_DEMO_FILE"  # tells clients where the server's file is
_ALPHA = 1.0  # of the Dirichlet partition: clearly uneven classes
_PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.2
_STOP_SECONDS = 30.0

_FILE = """\
# The server of a demo, made by: offbeat demo
service = {{ folder = "server", clients = {clients}, port = {port}, checkpoint_seconds = 5.0 }}
data = {{ name = "{data}" }}
model = {{ name = "mlp", hidden = [64] }}
local = {{ steps = {steps}, batch_size = 32, lr = 0.05 }}
algorithm = {{ algorithm = "fedbuff", buffer_size = {buffer_size}, concurrency = {clients} }}
server = {{ lease_seconds = 30.0 }}
stop = {{ versions = {versions} }}
evaluate = {{ every_versions = {versions} }}
"""


def run_demo(
    say: Callable[[str], None],
    folder: Path = Path("runs/demo"),
    *,
    data: str = "fashion-mnist",
    clients: int = 8,
    versions: int = 80,
    steps: int = 100,
) -> None:
    """Run a demo, from the main thread; all its processes end with it.

    An earlier demo's folder is emptied. Digits replace missing data. Raises ``SystemExit`` after SIGINT or SIGTERM.
    """
    began = time.monotonic()
    with _empty_folder(folder):
        dataset = _dataset(data, say)
        say(f"A server and {clients} clients learn {dataset.name}, each in a process of its own")
        file = folder / "server.toml"
        values = {"data": dataset.name, "clients": clients, "versions": versions, "steps": steps}
        file.write_text(_FILE.format(port=_free_port(), buffer_size=(clients + 1) // 2, **values), encoding="utf-8")
        # With one thread each, the processes do not slow each other down.
        environment = {_FILE_VARIABLE: str(file.resolve()), "OMP_NUM_THREADS": "1"}
        try:
            with Interruption() as interruption, _Processes(folder, environment, interruption) as processes:
                final = _tell_story(say, processes, folder, clients, versions)
        except InterruptedRunError as error:
            raise SystemExit(128 + error.signal) from None
    say(
        f"{final['counted']} updates counted; they were {final['mean_staleness']:.1f} versions old on average, "
        f"{final['max_staleness']} at most"
    )
    say("Killed: 2 clients, 2 times the server")
    say(f"Accuracy on {len(dataset.test_labels):,} test examples: {final['evaluated']['accuracy']:.1%}")
    say(f"{time.monotonic() - began:.0f} seconds; the files of server and clients are in {folder}")


def make_client(client: int) -> LocalSGD:
    """Return a client with its share of the data; called by ``offbeat join``."""
    file = load(Path(os.environ[_FILE_VARIABLE]))
    assert file.data is not None
    dataset = build_dataset(file.data)
    share = partition.dirichlet(dataset.train_labels, file.service.clients, _ALPHA, file.service.seed)[client]
    model = build_model(file.model, dataset, file.service.seed).module
    inputs = map_inputs(lambda part: part[share], dataset.train_inputs)
    return LocalSGD(model, LOSSES[file.model.loss], (inputs, dataset.train_labels[share]))


class _Processes:
    """Commands of ``offbeat`` in processes with log files; stopped at the end."""

    def __init__(self, folder: Path, environment: Mapping[str, str], interruption: Interruption) -> None:
        self._folder = folder
        self._environment = {**os.environ, **environment}
        self._interruption = interruption
        self._commands: dict[str, tuple[str, ...]] = {}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.terminate()  # so that the server stops its evaluating process
        for process in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            process.kill()
            process.wait()

    def start(self, name: str, *command: str) -> None:
        """Start a command; without one, start the earlier command of that name again."""
        self._commands[name] = command or self._commands[name]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [sys.executable, "-m", "offbeat", *self._commands[name]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def wait(self, is_done: Callable[[], bool], problem: str) -> None:
        """Wait for a condition; raise ``OffbeatError`` if a process fails or hangs."""
        end = time.monotonic() + _PATIENCE_SECONDS
        while not is_done():
            self._interruption.check()
            failed = [name for name, process in self._running.items() if process.poll()]
            if failed or time.monotonic() > end:
                happened = f"{failed[0]} has failed" if failed else problem
                raise OffbeatError(f"{happened}: see the logs in {self._folder}")
            time.sleep(_POLL_SECONDS)


def _tell_story(
    say: Callable[[str], None], processes: _Processes, folder: Path, clients: int, versions: int
) -> dict[str, Any]:
    """Run to the last version, with kills; return the last status."""
    server = folder / "server"

    def until(is_reached: Callable[[dict[str, Any]], bool], problem: str) -> dict[str, Any]:
        now: dict[str, Any] = {}

        def poll() -> bool:
            with suppress(OffbeatError):  # the server starts, or is too busy to answer
                now.update(status(server))
                return is_reached(now)
            return False

        processes.wait(poll, problem)
        return now

    processes.start("server", "serve", str(folder / "server.toml"))
    until(lambda _: True, "the server does not start")
    url = (server / "url").read_text(encoding="ascii").strip()
    say(f"The server listens at {url}")
    trust = ["--token-file", str(server / "enrolment-token"), "--ca", str(server / "tls" / "ca.pem")]
    homes = [folder / "clients" / str(client) for client in range(clients)]
    for client, home in enumerate(homes):
        join = ["join", url, "--client", f"{__name__}:make_client", *trust, "--folder", str(home)]
        processes.start(f"client-{client}", *join, "--name", f"client-{client}")
    processes.wait(lambda: all((home / "identity.json").exists() for home in homes), "the clients do not enrol")
    say(f"{clients} clients have enrolled")
    victims = [f"client-{clients // 3}", "server", f"client-{2 * clients // 3}", "server"]
    for number, name in enumerate(victims, start=1):
        due = versions * number // 6  # the last third of the run is undisturbed
        now = until(lambda now, due=due: now["version"] >= due, f"the run does not reach version {due}")
        processes.kill(name)
        say(f"Killed {name} at version {now['version']} of {versions}, and started it again")
        processes.start(name)
        if name == "server":
            now = until(lambda _: True, "the server does not start again")
            say(f"The server resumes at version {now['version']}")
    return until(lambda now: now["evaluated"] is not None, "the run does not end with an evaluation")


@contextmanager
def _empty_folder(folder: Path) -> Generator[None]:
    """Lock a folder, and remove the files of an earlier demo."""
    marker = folder / "demo.lock"
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


def _dataset(name: str, say: Callable[[str], None]) -> Dataset:
    try:
        return load_dataset(name)
    except MissingDataError as error:
        say(f"Handwritten digits instead, because {error}")
        return load_dataset("digits")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]
