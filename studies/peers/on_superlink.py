"""The rate at which Flower's SuperLink takes updates in.

``python on_superlink.py CLIENTS UPDATES [--database] [--nodes]`` runs in the peer's environment and prints a line of
JSON. The server is ``flower-superlink`` with the ServerApp of ``superlink_app/``, a process of its own, without TLS;
with ``--database`` its state is in SQLite, else in memory. The rate is from the first update in the ServerApp's sum to
the last.

With ``--nodes`` the clients are ``flower-supernode`` processes, each of which starts a process for every message. Else
they are threads of this process that use Flower's own client of the Fleet API and answer at once, with updates made and
hashed before: the least work that a client can do.
"""

import argparse
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import pull_objects, push_objects
from flwr.supernode.fleet_http_connection import http_request_response

APP = Path(__file__).with_name("superlink_app")
BIN = Path(sys.executable).parent
LENGTH = 10_000_000
LOOK_SECONDS = 0.05
# Of all clients together: more of them would keep the server from its work.
POLLS_A_SECOND = 25


@contextmanager
def running(*command: str) -> Generator[psutil.Process]:
    """Run one of Flower's programs with what it starts; end all of them."""
    process = psutil.Popen([BIN / command[0], *command[1:]], stdout=sys.stderr)
    try:
        yield process
    finally:
        family = [process, *process.children(recursive=True)]
        process.terminate()
        for each in psutil.wait_procs(family, timeout=3)[1]:
            each.kill()


def free_port() -> int:
    """Return a port at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def answer(address: str, number: int, look_seconds: float) -> None:
    """Be a client: answer every message with the same update.

    Each client has an update of its own.
    """
    # Within this nothing is hashed twice.
    with http_request_response(address, insecure=True) as line, no_object_id_recompute():
        _, receive, send, _, _, pull, push, confirm = line
        update = ArrayRecord([np.full(LENGTH, 1e-3 * (1 + number), np.float32)])
        get_all_nested_objects(update)
        while True:
            came = receive()
            if came is None:
                time.sleep(look_seconds)
                continue
            message, tree = came
            run = message.metadata.run_id
            pull_objects([part.object_id for part in iterate_object_tree(tree)], partial(pull, run))
            confirm(run, message.metadata.message_id)
            reply = Message(RecordDict({"update": update}), reply_to=message)
            reply.metadata.__dict__["_message_id"] = reply.object_id
            wanted, session = send(reply, get_object_tree(reply), 0.0)
            objects = get_all_nested_objects(reply)
            if wanted < objects.keys():
                os._exit(1)  # what the server has already would not travel
            push_objects(objects, partial(push, run, session), object_ids_to_push=wanted)


def watch(process: psutil.Process, most_bytes: list[int]) -> None:
    """Note the most resident memory of a process and those that it has started."""
    while True:
        total = 0
        try:
            for each in [process, *process.children(recursive=True)]:
                total += each.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        most_bytes[0] = max(most_bytes[0], total)
        time.sleep(0.2)


def measure(clients: int, updates: int, database: bool, nodes: bool, folder: Path) -> dict[str, Any]:
    """Return the row."""
    port, result = free_port(), folder / "result.json"
    address = f"127.0.0.1:{port}"
    os.environ |= {"FLWR_HOME": str(folder), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"  # it starts programs of its own by name
    (folder / "config.toml").write_text(f'[superlink.here]\naddress = "{address}"\ninsecure = true\n')
    command = ["flower-superlink", "--insecure", "--port", str(port), "--disable-runtime-dependency-installation"]
    command += ["--database", str(folder / "state.db")] if database else []
    most_bytes = [0]
    with ExitStack() as stack:
        server = stack.enter_context(running(*command))
        threading.Thread(target=watch, args=(server, most_bytes), daemon=True).start()
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionError:
                time.sleep(LOOK_SECONDS)
        for number in range(clients):
            if nodes:
                own = ["--port", str(free_port())]
                stack.enter_context(running("flower-supernode", "--insecure", "--superlink", address, *own))
            else:
                arguments = (address, number, clients / POLLS_A_SECOND)
                threading.Thread(target=answer, args=arguments, daemon=True).start()
        settings = f'clients={clients} updates={updates} length={LENGTH} result="{result}"'
        subprocess.run([BIN / "flwr", "run", APP, "here", "--run-config", settings], stdout=sys.stderr, check=True)
        while not result.exists():
            time.sleep(LOOK_SECONDS)
    times = json.loads(result.read_text())
    return {
        "version": importlib.metadata.version("flwr"),
        "updates_per_second": (len(times) - 1) / (times[-1] - times[0]),
        "server_rss_mib": round(most_bytes[0] / 2**20),
    }


def main() -> None:
    """Print the row."""
    parser = argparse.ArgumentParser(description="How fast Flower's SuperLink takes updates in.")
    parser.add_argument("clients", type=int)
    parser.add_argument("updates", type=int)
    parser.add_argument("--database", action="store_true", help="keep its state in SQLite")
    parser.add_argument("--nodes", action="store_true", help="real SuperNodes")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        row = measure(arguments.clients, arguments.updates, arguments.database, arguments.nodes, Path(folder))
    print(json.dumps(row), flush=True)
    os._exit(0)  # the clients' threads would try for a long time to reach the server


if __name__ == "__main__":
    main()
