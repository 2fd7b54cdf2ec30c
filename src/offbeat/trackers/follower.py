"""A process that sends runs to a tracker while they are carried out.

A tracker's library, its threads and its waiting stay out of the process of the runs.
"""

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Self

from offbeat_core.errors import OffbeatError

from offbeat.trackers.catch_up import CatchUp
from offbeat.trackers.libraries import TrackerName

_PATIENCE_SECONDS = 60.0  # that a command waits for its tracker in the end
_INTERVAL_SECONDS = 5.0


class Follower:
    """The tracker's process of one folder of runs, as a context.

    ``problem`` is the error of its last attempt, or empty.
    """

    def __init__(self, folder: Path, name: TrackerName) -> None:
        self._folder = folder
        self.name = name
        self.problem = ""

    def __enter__(self) -> Self:
        """Start the process."""
        command = [sys.executable, "-m", "offbeat", "track", self._folder, "--to", self.name, "--follow"]
        # In a session of its own, since Ctrl-C ends the runs, not the sending of what they have written.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        """Let the process send the rest, and wait for it."""
        try:
            said = self._process.communicate(timeout=_PATIENCE_SECONDS)[1]
            if self._process.returncode:
                self.problem = said.decode(errors="replace").strip().rpartition("\n")[2].removeprefix("offbeat: ")
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
            self.problem = f"{self.name} did not take everything within {_PATIENCE_SECONDS:.0f} seconds"


def follow(folder: Path, name: TrackerName) -> None:
    """Send what runs write until standard input is closed.

    A failure is tried again; raises ``OffbeatError`` if the last attempt fails.
    """
    have_ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        have_ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    while not have_ended.wait(_INTERVAL_SECONDS):
        with suppress(OffbeatError):
            CatchUp(folder, name).send()
    CatchUp(folder, name).send()
