"""Runs' folders, sent to a tracker as far as it does not have them yet.

What a tracker has is noted in ``.tracking/NAME.json`` beside the runs. Runs themselves never wait for a tracker: its
library, its threads and its waiting are in a process of their own.
"""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably
from offbeat_core.user_code_errors import error_line

from offbeat.runs import directory as run_directory
from offbeat.trackers.tracker import Point, TrackedRun, Tracker, TrackerName, points_of, tracker_maker

_FILES = ("config.toml", "versions.json", "history.parquet")
_POINTS_AT_ONCE = 500


@dataclass
class _Sent:
    """The part of a run that a tracker has."""

    settings: str  # SHA-256 of the configuration and the versions
    key: str | None = None
    rows: int = 0
    ended: bool = False


class CatchUp:
    """The runs of a folder and one tracker."""

    def __init__(self, folder: Path, name: TrackerName) -> None:
        self._folder = folder
        self._name: TrackerName = name
        self._make: Callable[[], Tracker] = tracker_maker(name, folder)
        self._path = folder / ".tracking" / f"{name}.json"
        self._sent: dict[str, _Sent] = {}

    def send(self) -> int:
        """Send what the tracker does not have yet; return the number of evaluations.

        Raises ``OffbeatError`` if the tracker fails, whose part is noted, or if another process sends the runs to it.
        """
        with run_directory.disk_errors(str(self._path), "free some space"):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._path.with_suffix(".lock"), blocking=False)
        try:
            with lock:
                self._sent = self._read()
                return sum(self._send(path) for path in run_paths(self._folder))
        except Timeout:
            raise OffbeatError(f"another process is sending {self._folder} to {self._name}: wait for it") from None

    def _send(self, path: Path) -> int:
        config, label, seed = run_directory.read_settings(path)
        run, finished = TrackedRun(config["name"], label, seed, config), run_directory.is_finished(path)
        settings = _digest({"config": config, "versions": run_directory.read_versions(path)})
        sent = self._sent.get(run.name)
        if sent is None or sent.settings != settings:  # a run with other settings or code has taken the place
            sent = _Sent(settings)
        if sent.ended:
            return 0
        history = run_directory.read_history(path, config)
        points = points_of(history, sent.rows)
        if not points and not finished:
            return 0
        try:
            self._send_to(self._make(), run, sent, points, [path / name for name in _FILES] if finished else None)
        except Exception as error:  # a tracker's library may raise any type
            raise OffbeatError(f"{self._name} failed: {error_line(error)}") from error
        return len(points)

    def _send_to(
        self, tracker: Tracker, run: TrackedRun, sent: _Sent, points: Sequence[Point], files: Sequence[Path] | None
    ) -> None:
        """Send evaluations and, of a finished run, its files."""
        sent.key = tracker.begin(run, sent.key)
        self._note(run, sent)
        for first in range(0, len(points), _POINTS_AT_ONCE):
            batch = points[first : first + _POINTS_AT_ONCE]
            tracker.log(batch)
            sent.rows += len(batch)
            self._note(run, sent)
        for file in files or ():
            tracker.file(file)
        tracker.end(finished=files is not None)
        sent.ended = files is not None
        self._note(run, sent)

    def _read(self) -> dict[str, _Sent]:
        if not self._path.exists():
            return {}
        try:
            content: dict[str, Any] = json.loads(self._path.read_text(encoding="utf-8"))
            return {name: _Sent(**fields) for name, fields in content.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            raise OffbeatError(f"{self._path} is broken: remove it to send all runs again, as new ones") from None

    def _note(self, run: TrackedRun, sent: _Sent) -> None:
        self._sent[run.name] = sent
        with run_directory.disk_errors(str(self._path), "free some space"):
            write_durably(
                self._path, (json.dumps({name: asdict(sent) for name, sent in self._sent.items()}) + "\n").encode()
            )


def run_paths(folder: Path) -> Iterator[Path]:
    """Yield the folders of the runs, finished ones before those that continue."""
    found = sorted(path.parent for path in folder.glob("[!.]*/config.toml"))
    for path in found:
        # The run that replaces a finished one is sent once it is finished.
        if not path.name.endswith(".unfinished") or path.with_suffix("") not in found:
            yield path


def _digest(config: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()


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
