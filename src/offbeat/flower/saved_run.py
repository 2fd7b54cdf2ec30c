"""The folder with which a ServerApp resumes its run."""

import json
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError
from offbeat_core.files import write_durably

from offbeat.checkpoint import read_checkpoint, write_checkpoint


class SavedRun:
    """The state of a run in a folder, which one process at a time may use.

    Args:
        folder: The folder; it is made.
        settings: The run's, which must not change: plain values.

    Raises:
        OffbeatError: The folder is in use, or has a run with other settings.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        self._path = folder / "run.safetensors"
        self._folder = folder
        self._settings = json.loads(json.dumps(settings))
        self._lock = FileLock(folder / ".lock", blocking=False)

    def __enter__(self) -> Self:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout:
            raise OffbeatError(f"another ServerApp is at work in {self._folder}: give each a folder") from None
        except OSError as error:
            raise OffbeatError(f"cannot use {self._folder}: {error.strerror}: take another folder") from None
        try:
            self._check_settings()
        except BaseException:
            self._lock.release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._lock.release()

    def _check_settings(self) -> None:
        path = self._folder / "settings.json"
        if not path.exists():
            write_durably(path, json.dumps(self._settings, indent=1).encode())
            return
        try:
            saved: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raise OffbeatError(f"{path} is broken: take another folder") from None
        for key, value in self._settings.items():
            if saved.get(key) != value:
                raise OffbeatError(
                    f"{self._folder} has a run with {key} = {saved.get(key)}, now it is {value}: set it back, or take "
                    "another folder"
                )

    def read(self) -> dict[str, Any] | None:
        """Return the saved state; None if there is none."""
        return read_checkpoint(self._path) if self._path.exists() else None

    def write(self, state: dict[str, Any]) -> None:
        """Save a state; a kill leaves the old one or the new one."""
        write_checkpoint(self._path, state)
