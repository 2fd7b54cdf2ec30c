"""The processes of a demo, which end with it."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from offbeat_core.errors import OffbeatError

from offbeat.runs.interruption import Interruption

FILE_VARIABLE = "OFFBEAT_DEMO_FILE"
"""The environment variable that names the server's file to clients."""

_PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.2
_STOP_SECONDS = 30.0


class Processes:
    """Commands of ``offbeat`` in processes with log files; stopped at the end.

    Args:
        folder: Where the log files are.
        environment: Variables that are added to those of this process.
        interruption: The signals that end a wait.
    """

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
