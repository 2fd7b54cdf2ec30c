"""Server, helper and clients as processes that are killed: the model is the sum of all shares that counted, exactly."""

import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from itertools import cycle, islice
from pathlib import Path

import pytest
from safetensors.numpy import load_file

CLIENTS = 4
KILLS = int(os.environ.get("OFFBEAT_PRIVATE_KILLS", "4"))
VERSIONS = 3 * KILLS + 12
_WAIT_SECONDS = 240.0  # for the next version, on a busy machine
STEP = 2**-7  # of the terms below, so that updates of whole steps are rounded to themselves
ROSTER = """
[terms]
length = 4
buffer = 3
min_clients = 2
clip_norm = 0.9921875
noise_multiplier = 0.0
max_participations = 1000
bits = 8
delta = 1e-5
[clients]
"""
SERVER = """
[service]
folder = "server"
clients = 4
port = PORT
helper_terms = "helper/terms.json"
helper_token_file = "token"
helper_ca = "helper/tls/ca.pem"
checkpoint_seconds = 1.0
[model]
name = "net.py:net"
[local]
steps = 1
batch_size = 1
lr = 0.1
[stop]
versions = VERSIONS
[privacy]
helper = "https://127.0.0.1:HELPER"
min_clients = 2
clip_norm = 0.9921875
max_participations = 1000
bits = 8
[algorithm]
algorithm = "fedbuff"
buffer_size = 2
concurrency = 4
staleness.name = "constant"
"""
NET = """
from torch import nn
def net():
    layer = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(layer.weight)
    return layer
"""
CLIENT = """
import os, time
from offbeat_client import Fitted
def make_client(number):
    which = int(os.environ["WHICH"])
    def fit(model, visit):
        time.sleep(0.1)
        end = model["weight"].clone()
        end[0, which] -= 2**-7 * (which + 1)
        return Fitted({"weight": end}, examples=1, steps=1)
    return fit
"""


def offbeat(folder: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "offbeat", *command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Process:
    """A command that can be killed and started again."""

    def __init__(self, folder: Path, *command: str, **environment: str) -> None:
        self._folder, self._command = folder, [sys.executable, "-m", "offbeat", *command]
        self._environment = os.environ | environment
        self.start()

    def start(self) -> None:
        with (self._folder / "errors").open("ab") as errors:
            self.process = subprocess.Popen(
                self._command, cwd=self._folder, env=self._environment, stdout=subprocess.DEVNULL, stderr=errors
            )

    def kill(self) -> None:
        self.process.kill()
        assert self.process.wait(30) == -signal.SIGKILL

    def close(self) -> None:
        self.process.kill()
        self.process.wait(30)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def participations(helper: Path) -> list[int]:
    """Return how often each client was in an opened sum, by name."""
    with closing(sqlite3.connect(helper / "helper.sqlite")) as database:
        return [count for (count,) in database.execute("SELECT participations FROM clients ORDER BY name")]


def newest_version(folder: Path) -> int:
    return max((int(path.stem) for path in (folder / "models").glob("[0-9]*.safetensors")), default=0)


@pytest.mark.skipif(os.name == "nt", reason="sends SIGKILL")
def test_a_private_run_survives_kills_of_server_helper_and_clients(tmp_path):
    port, helper_port = free_port(), free_port()
    keys = [offbeat(tmp_path, "privacy", "key", "--folder", f"client-{which}").strip() for which in range(CLIENTS)]
    names = "\n".join(f'client-{which} = "{key}"' for which, key in enumerate(keys))
    (tmp_path / "roster.toml").write_text(ROSTER + names)
    enrolled = offbeat(tmp_path, "helper", "enrol", "roster.toml", "--folder", "helper")
    (tmp_path / "token").write_text(re.search(r"obh_\S+", enrolled)[0])
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "client.py").write_text(CLIENT)
    values = {"PORT": port, "HELPER": helper_port, "VERSIONS": VERSIONS}
    (tmp_path / "server.toml").write_text(re.sub("PORT|HELPER|VERSIONS", lambda found: str(values[found[0]]), SERVER))
    with ExitStack() as stack:

        def run(*command: str, **environment: str) -> Process:
            return stack.enter_context(closing(Process(tmp_path, *command, **environment)))

        server = run("serve", "server.toml")
        helper = run("helper", "serve", "--folder", "helper", "--port", str(helper_port))
        deadline = time.monotonic() + _WAIT_SECONDS
        while not (tmp_path / "server" / "url").exists() or not (tmp_path / "server" / "enrolment-token").exists():
            assert time.monotonic() < deadline, (tmp_path / "errors").read_text()
            time.sleep(0.1)
        clients = [
            run(
                "join", f"https://127.0.0.1:{port}", "--token-file", "server/enrolment-token", "--ca",
                "server/tls/ca.pem", "--client", "client.py:make_client", "--folder", f"client-{which}",
                "--terms", "helper/terms.json", WHICH=str(which),
            )
            for which in range(CLIENTS)
        ]  # fmt: skip
        victims = islice(cycle([server, helper, clients[0], server, clients[1], helper]), KILLS)
        for number, victim in enumerate(victims, start=1):
            deadline = time.monotonic() + _WAIT_SECONDS
            while newest_version(tmp_path / "server") < 3 * number:
                assert time.monotonic() < deadline, (tmp_path / "errors").read_text()
                assert all(client.process.poll() in (None, 0) for client in clients), (tmp_path / "errors").read_text()
                time.sleep(0.02)
            victim.kill()
            victim.start()
        for client in clients:
            assert client.process.wait(_WAIT_SECONDS) == 0, (tmp_path / "errors").read_text()
    counts = participations(tmp_path / "helper")
    assert newest_version(tmp_path / "server") == VERSIONS
    model = load_file(tmp_path / "server" / "models" / f"{VERSIONS}.safetensors")["weight"][0]
    # Each version moves the model by the mean of two shares; client i's is i + 1 steps in coordinate i.
    assert model.tolist() == [count * (which + 1) * STEP / -2 for which, count in enumerate(counts)]
    assert sum(counts) == 2 * VERSIONS
