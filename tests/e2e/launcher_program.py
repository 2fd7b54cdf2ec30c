"""Starts clients and commands in no time: all is imported once, and each is a fork, a process of its own to be killed.

Run as a program: a line of standard input is an object of JSON. ``{"start": …, "output": …}`` holds the arguments of
``live`` and a file for what it says, and the answer is the new process's number. ``{"command": …, "folder": …,
"files": …, "environment": …, "output": …}`` holds the arguments of ``offbeat`` and, if they differ, its limits of open
files and variables of its environment.
``{"ended": number}`` is answered by a list of how the process ended, or by ``null`` if it has not. At the end of the
input all that still run are killed.
"""

import json
import logging
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from offbeat_client.http.connection import Backoff
from offbeat_core.http.service_errors import UnreachableError
from offbeat_private.helper import helper_server
from torch import Tensor

from offbeat.cli import main as cli
from offbeat.client import Visit, run_client
from offbeat.service.engine import visit_messages
from offbeat.service.server import serving as server
from offbeat.worlds import serve as serving

__all__ = ["helper_server", "server", "serving"]  # imported before the forks

TRAINING = "training"
"""A file that is in a client's folder while it trains."""


def trained(
    start: dict[str, Tensor], client: int, visit: int, offset: dict[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Return what a client makes of a model: always the same, and another with each model, client, visit and offset."""
    generator = torch.Generator().manual_seed(1_000_003 * client + visit)
    end = {name: 0.9 * tensor + torch.randn(tensor.shape, generator=generator) for name, tensor in start.items()}
    return end if offset is None else {name: tensor - 0.1 * offset[name] for name, tensor in end.items()}


def live(url: str, token: str, folder: str, gate: str) -> None:
    """Take part until the run is over.

    ``gate`` is a file with a version: training from that or a later one lasts until it holds another number.
    """
    note = Path(folder) / TRAINING

    def fit(model: dict[str, Tensor], visit: Visit) -> tuple[dict[str, Tensor], int]:
        note.touch()
        end = time.monotonic() + random.uniform(0.0, 0.1)
        while time.monotonic() < end or visit.version >= int(Path(gate).read_text()):
            time.sleep(0.01)
        note.unlink()
        return trained(model, visit.client, visit.number, visit.offset), 1 + visit.client

    def make_client(client: int) -> Callable[[dict[str, Tensor], Visit], tuple[dict[str, Tensor], int]]:
        fit.examples = 1 + client  # pyright: ignore[reportFunctionMemberAccess]
        fit.corrects_gradients = True  # pyright: ignore[reportFunctionMemberAccess]
        return fit

    backoff = Backoff(first_seconds=0.02, largest_seconds=0.3)
    while True:
        # Who has not enrolled yet gives up after a few attempts.
        with suppress(UnreachableError):
            run_client(url, make_client, Path(folder), enrolment_token=token, backoff=backoff)
            return


def command(
    arguments: list[str], folder: str, files: tuple[int, int] | None, environment: dict[str, str] | None
) -> None:
    """Run a command of offbeat in a folder; a server lets clients without work come back after 0.2 seconds."""
    os.chdir(folder)
    os.environ.update(environment or {})
    if files is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, tuple(files))
    visit_messages.RETRY_SECONDS = 0.2
    sys.argv = ["offbeat", *arguments]
    cli.main()


def _start(work: Callable[[], None], output: str) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        file = os.open(output, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
        logging.basicConfig(format="%(message)s", level=logging.INFO)
        logging.getLogger("httpx").setLevel(logging.WARNING)
        work()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def main() -> None:
    torch.set_num_threads(1)
    running: set[int] = set()
    for line in sys.stdin:
        asked = json.loads(line)
        if "start" in asked:
            answer = _start(partial(live, **asked["start"]), asked["output"])
            running.add(answer)
        elif "command" in asked:
            arguments = asked["command"], asked["folder"], asked.get("files"), asked.get("environment")
            answer = _start(partial(command, *arguments), asked["output"])
            running.add(answer)
        else:
            process, status = os.waitpid(asked["ended"], os.WNOHANG)
            running.discard(process)
            answer = [status] if process else None
        print(json.dumps(answer), flush=True)
    for process in running:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


if __name__ == "__main__":
    main()
