"""``offbeat demo``: a server and its clients as processes of this machine, some of them killed on the way."""

import shutil
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import torch
from filelock import FileLock, Timeout
from safetensors.torch import load_file

from offbeat.cli.demo import demo_client
from offbeat.cli.demo.demo_processes import Processes, Signals
from offbeat.cli.demo.demo_story import Story
from offbeat.config.server_file import load
from offbeat.data import load_dataset
from offbeat.data.dataset import Dataset, MissingDataError
from offbeat.errors import OffbeatError
from offbeat.service.server.admin import newest_model
from offbeat.training.evaluation import Evaluator
from offbeat.training.objectives import LOSSES, METRICS
from offbeat.worlds.simulation import build_model

_LOCK = "demo.lock"

_FILE = """\
# The server of a demo, made by: offbeat demo

[service]
folder = "server"
clients = {clients}
port = {port}
seed = {seed}
checkpoint_seconds = 5.0

[data]
name = "{data}"

[model]
name = "mlp"
hidden = [64]

[local]
steps = {steps}
batch_size = 32
lr = 0.05

[algorithm]
algorithm = "fedbuff"
buffer_size = {buffer_size}
concurrency = {clients}

[server]
lease_seconds = 30.0

[stop]
versions = {versions}
"""


@dataclass(frozen=True)
class DemoSettings:
    """How large a demo is.

    Attributes:
        data: The data set; digits are taken if it cannot be had.
        clients: How many there are; two of them are killed, and started again.
        versions: Of the model, until the end.
        steps: Of local SGD in a visit.
        buffer_size: Updates that make a version.
        server_kills: How often the server is killed, and started again.
        seed: The run's seed.
    """

    data: str = "fashion-mnist"
    clients: int = 8
    versions: int = 80
    steps: int = 100
    buffer_size: int = 4
    server_kills: int = 2
    seed: int = 1


def run_demo(
    say: Callable[[str], None], folder: Path = Path("runs/demo"), settings: DemoSettings | None = None
) -> float:
    """Run a demo, from the main thread; however it ends, it leaves no process behind.

    Args:
        say: Is told in a line what happens.
        folder: For all that server and clients keep; that of an earlier demo is emptied first.
        settings: How large it is.

    Returns:
        The final model's accuracy on the test set.

    Raises:
        OffbeatError: The folder holds something else, or a process failed or got stuck.
        SystemExit: It was interrupted; all processes have been ended.
    """
    began = time.monotonic()
    settings = settings or DemoSettings()
    with _emptied(folder):
        dataset = _dataset(settings.data, say)
        say(f"A server and {settings.clients} clients learn {dataset.name}, each in a process of its own")
        file = folder / "server.toml"
        values = {**vars(settings), "data": dataset.name}
        file.write_text(_FILE.format(port=_free_port(), **values), encoding="utf-8")
        # One thread each, or all of them would be in each other's way.
        environment = {demo_client.FILE: str(file.resolve()), "OMP_NUM_THREADS": "1"}
        kills = _kills(settings)
        with Signals() as signals, Processes(folder, environment) as processes:
            story = Story(say, folder, processes, signals, settings.versions)
            final = story.tell(settings.clients, kills)
        accuracy = _accuracy(file, dataset)
    say(
        f"{final['counted']} updates counted; they were {final['mean_staleness']:.1f} versions old on average, "
        f"{final['max_staleness']} at most"
    )
    say(f"Killed: {len(kills) - settings.server_kills} clients, {settings.server_kills} times the server")
    say(f"Accuracy on {len(dataset.test_labels):,} test examples: {accuracy:.1%}")
    say(f"{time.monotonic() - began:.0f} seconds; what server and clients kept is in {folder}")
    return accuracy


def _kills(settings: DemoSettings) -> list[int | None]:
    """Return who is killed in turn: clients and the server (None), one after the other."""
    clients = [settings.clients // 3, 2 * settings.clients // 3]
    server: list[None] = [None] * settings.server_kills
    return [who for pair in zip_longest(clients, server, fillvalue=-1) for who in pair if who != -1]


@contextmanager
def _emptied(folder: Path) -> Generator[None]:
    """Hold a folder, after removing what an earlier demo has left there."""
    try:
        if folder.exists() and not (folder / _LOCK).exists() and any(folder.iterdir()):
            raise OffbeatError(f"{folder} holds something else than a demo: take another folder")
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / _LOCK, blocking=False)
        lock.acquire()
        _empty(folder)
    except Timeout:
        raise OffbeatError(f"another demo is at work in {folder}: wait for its end, or take another folder") from None
    except OSError as error:
        raise OffbeatError(f"cannot use {folder}: {error.strerror}; take another folder") from None
    with lock:
        yield


def _empty(folder: Path) -> None:
    # A demo that was killed with SIGKILL may have left its server running.
    if (folder / "server").exists():
        with FileLock(folder / "server" / "server.lock", blocking=False):
            pass
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != _LOCK:
            path.unlink()


def _dataset(name: str, say: Callable[[str], None]) -> Dataset:
    try:
        return load_dataset(name)
    except MissingDataError as error:
        say(f"Handwritten digits instead, since {error}")
        return load_dataset("digits")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def _accuracy(file: Path, dataset: Dataset) -> float:
    """Return the accuracy of the newest model on the test set."""
    server = load(file)
    model = build_model(server.model, dataset, server.service.seed)
    tensors = load_file(newest_model(Path(server.service.folder)))
    evaluate = Evaluator(
        model,
        loss=LOSSES[server.model.loss],
        metrics={"accuracy": METRICS["accuracy"].function},
        inputs=torch.from_numpy(dataset.test_inputs),
        labels=torch.from_numpy(dataset.test_labels),
        seed=server.service.seed,
    )
    _, metrics = evaluate(torch.cat([tensors[name].reshape(-1) for name in model.named(model.vector)]))
    return metrics["accuracy"]
