"""The cost of a version with masks, beside a plain one, end to end.

Run it with ``make bench-privacy``. Two services run on this machine, one plain, one with a helper, each with a server
in a process of its own, over HTTPS on 127.0.0.1. In turn, four client processes do the same visits at either: download,
20 steps of SGD (least squares on batches of 32), share or plain update, upload. A version takes four updates. A masked
one takes one from each client, so that clients wait for the slowest; plain clients do not wait.

A figure is for a version: the median of the repetitions, and their range; *ratio* is that of masked to plain, pair by
pair. Processor time is that of server, helper and clients together.
"""

import argparse
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tomli_w
from numpy.typing import NDArray
from offbeat_client import Fitted, Visit, run_client
from offbeat_client.private_updates import public_key
from offbeat_core.errors import OffbeatError

from offbeat.cli.demo.demo_run import free_port
from offbeat.service.server.admin import live_status

CLIENTS = 4  # one less than the server has places for: it wants one to be free while a sum waits
INPUTS, BATCH, STEPS = 1000, 32, 20
MODEL = """
from torch import nn
def make(outputs):
    return nn.Linear(1000, outputs, bias=False)
"""
Arrays = dict[str, NDArray[np.float32]]


class Cost(NamedTuple):
    """Seconds of a version: of the clock, and of processors."""

    wall: float
    server: float
    helper: float
    clients: float

    @property
    def processors(self) -> float:
        """Processor seconds of all processes."""
        return self.server + self.helper + self.clients


class Service:
    """A server, with a helper if it is private, and four clients.

    Args:
        folder: Where its files are made.
        length: Parameters of the model, a multiple of 1,000.
        is_private: Whether updates are masked.
        stack: Ends its processes.
    """

    def __init__(self, folder: Path, length: int, is_private: bool, stack: ExitStack) -> None:
        folder.mkdir()
        self._folder = folder
        self._version = 0
        self._homes = [folder / f"client-{number}" for number in range(CLIENTS)]
        (folder / "model.py").write_text(MODEL)
        port, table = free_port(), _server_table(length)
        table["service"]["port"] = port
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        if is_private:
            self._processes["helper"] = self._start_helper(length, table, stack)
        (folder / "server.toml").write_text(tomli_w.dumps(table))
        self._processes["server"] = _start(stack, folder, "server", "server", "start", "server.toml")
        self._url = f"https://127.0.0.1:{port}"
        self._wait(0)
        self._terms = folder / "helper" / "terms.json" if is_private else None

    def _start_helper(
        self, length: int, table: dict[str, dict[str, object]], stack: ExitStack
    ) -> subprocess.Popen[bytes]:
        port = free_port()
        agreed = {"min_clients": CLIENTS, "clip_norm": 1.0, "max_participations": 10**6}
        terms = {**agreed, "length": length, "buffer": 2 * CLIENTS - 1, "noise_multiplier": 0.0, "delta": 1e-5}
        keys = {home.name: public_key(home) for home in self._homes}
        roster = {"terms": terms, "local": table["local"], "clients": keys}
        (self._folder / "roster.toml").write_text(tomli_w.dumps(roster))
        enrol = [sys.executable, "-m", "offbeat", "helper", "enrol", "roster.toml"]
        printed = subprocess.run(enrol, cwd=self._folder, capture_output=True, text=True, check=True).stdout
        token = re.search(r"obh_\S+", printed)
        assert token is not None
        (self._folder / "token").write_text(token[0])
        table["privacy"] = {"helper": f"https://127.0.0.1:{port}", **agreed}
        table["service"] |= {"helper_terms": "helper/terms.json", "helper_token_file": "token"}
        table["service"]["helper_ca"] = "helper/tls/ca.pem"
        return _start(stack, self._folder, "helper", "helper", "serve", "--port", str(port))

    def make_versions(self, number: int) -> Cost:
        """Let every client do ``number`` visits, until as many versions are made."""
        before = {name: _cpu_seconds(process) for name, process in self._processes.items()}
        children, began = _children_seconds(), time.perf_counter()
        context = get_context("fork")
        clients = [context.Process(target=self._visit, args=(home, number)) for home in self._homes]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
            assert client.exitcode == 0
        self._version += number
        self._wait(self._version)
        wall = time.perf_counter() - began
        used = {name: _cpu_seconds(process) - before[name] for name, process in self._processes.items()}
        costs = wall, used["server"], used.get("helper", 0.0), _children_seconds() - children
        return Cost(*(cost / number for cost in costs))

    def _wait(self, version: int) -> None:
        while True:
            with suppress(OffbeatError):  # it starts
                if live_status(self._folder / "server")["version"] == version:
                    return
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise ChildProcessError(f"{name} has ended: {(self._folder / f'{name}.log').read_text()}")
            time.sleep(0.02)

    def _visit(self, home: Path, visits: int) -> None:
        server = self._folder / "server"
        token, ca = (server / "enrolment-token").read_text().strip(), server / "tls" / "ca.pem"
        run_client(self._url, _make_client, home, enrolment_token=token, ca=ca, visits=visits, terms=self._terms)


def _make_client(number: int) -> Callable[[Arrays, Visit], Fitted]:
    inputs = np.random.default_rng(number).standard_normal((BATCH, INPUTS), np.float32)

    def fit(model: Arrays, visit: Visit) -> Fitted:
        weight = model["weight"].copy()
        for _ in range(visit.plan.steps):
            errors = inputs @ weight.T - 1
            weight -= np.float32(visit.plan.lr / BATCH) * (errors.T @ inputs)
        return Fitted({"weight": weight}, examples=BATCH, steps=visit.plan.steps)

    return fit


def _server_table(length: int) -> dict[str, dict[str, object]]:
    return {
        "service": {"folder": "server", "clients": CLIENTS + 1, "requests_a_second": 1e9},
        "model": {"name": "model.py:make", "arguments": {"outputs": length // INPUTS}},
        "local": {"steps": STEPS, "batch_size": BATCH, "lr": 1e-3},
        "algorithm": {"algorithm": "fedbuff", "buffer_size": CLIENTS, "concurrency": CLIENTS},
    }


def _start(stack: ExitStack, folder: Path, name: str, *command: str) -> subprocess.Popen[bytes]:
    """Start a command of ``offbeat`` that ends with the stack."""
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    whole = [sys.executable, "-m", "offbeat", *command]
    process = subprocess.Popen(whole, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def _cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _print_row(name: str, values: list[float], form: str) -> None:
    median, least, most = (format(value, form) for value in (statistics.median(values), min(values), max(values)))
    print(f"{name:42} {median:>9}  {least} … {most}")


def measure(length: int, pairs: int, versions: int) -> None:
    """Print the costs of a version of one model."""
    costs: dict[bool, list[Cost]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        services = {which: Service(Path(name) / str(which), length, which, stack) for which in costs}
        for service in services.values():
            service.make_versions(2)  # enrols, and fills caches
        for pair in range(pairs):
            for which in (pair % 2 == 0, pair % 2 == 1):
                costs[which].append(services[which].make_versions(versions))
    print(f"\n{length:,} parameters, {pairs} pairs{'':17} ms a version  range")
    for which, kind in ((False, "plain"), (True, "masked")):
        for part in ("wall", "processors", "server", "helper", "clients"):
            if which or part != "helper":
                _print_row(f"{kind}: {part}", [1000 * getattr(cost, part) for cost in costs[which]], ".0f")
    for part in ("wall", "processors"):
        both = zip(costs[True], costs[False], strict=True)
        _print_row(f"ratio: {part}", [getattr(mask, part) / getattr(plain, part) for mask, plain in both], ".2f")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="What a version with masks costs.")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--versions", type=int, default=3, help="in a repetition")
    parser.add_argument("--length", type=int, action="append", help="parameters, a multiple of 1,000")
    arguments = parser.parse_args()
    for length in arguments.length or (1_000_000, 10_000_000):
        measure(length, arguments.pairs, arguments.versions)


if __name__ == "__main__":
    main()
