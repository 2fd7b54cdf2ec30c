"""The processes of the demo: started, killed, started again, and none left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from offbeat.errors import OffbeatError

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Signals:
    """Within it, what would end the program is only noted; at its end it does end it.

    So none comes between the start of a process and the note that there is one.
    """

    def __init__(self) -> None:
        self._first: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self.check()

    def check(self) -> None:
        """Raise ``SystemExit`` if a signal has come."""
        if self._first is not None:
            raise SystemExit(128 + self._first)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._first = self._first or number


class Processes:
    """Commands of ``offbeat``, each in a process with a name and a log; on leaving all that still run are killed.

    Args:
        folder: Where the logs go: what ``server`` prints is in ``server.log``.
        environment: What is added to the environment.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**os.environ, **environment}
        self._commands: dict[str, Sequence[str]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._log_begins: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def start(self, name: str, command: Sequence[str] = ()) -> None:
        """Start a process, with the same command as before if none is given."""
        self._commands[name] = command or self._commands[name]
        # A file and no pipe, which would have to be read all the time.
        with self._log(name).open("ab") as log:
            self._log_begins[name] = log.tell()
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "offbeat", *self._commands[name]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )

    def kill(self, name: str) -> None:
        """Kill a process with SIGKILL."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str, seconds: float) -> None:
        """Ask a process with SIGTERM to end, and wait for it.

        Raises:
            OffbeatError: It does not within these seconds, or not well.
        """
        self._processes[name].terminate()
        if not self.have_ended([name], seconds):
            raise OffbeatError(f"{name} does not stop: see {self._log(name)}")
        self.check()

    def have_ended(self, names: Sequence[str], seconds: float) -> bool:
        """Wait until these have ended, at most so many seconds; return whether they have."""
        end = time.monotonic() + seconds
        while any(self._processes[name].poll() is None for name in names):
            if time.monotonic() >= end:
                return False
            time.sleep(0.05)
        return True

    def printed(self, name: str) -> str:
        """Return what a process has printed since it was last started."""
        with self._log(name).open("rb") as log:
            log.seek(self._log_begins[name])
            return log.read().decode(errors="replace")

    def check(self) -> None:
        """Look whether all is well.

        Raises:
            OffbeatError: A process has failed; the message has the last line that it printed.
        """
        for name, process in self._processes.items():
            if process.poll():
                last = (self.printed(name).strip() or "it printed nothing").splitlines()[-1]
                raise OffbeatError(f"{name} has failed ({last}): see {self._log(name)}")

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"
