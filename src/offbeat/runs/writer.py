"""Writing a run while it goes on, such that a kill loses no more than what came after the last checkpoint."""

import json
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import tomli_w
from safetensors.torch import save
from torch import Tensor

from offbeat.checkpoint import read_checkpoint, write_checkpoint
from offbeat.errors import OffbeatError
from offbeat.files import rename_durably
from offbeat.runs import directory as run_directory
from offbeat.runs.package_versions import check_versions
from offbeat.runs.parquet_chunks import Parts, part_paths
from offbeat.simulation.records import Evaluation, VisitEnded

_MOST_ROWS = 100_000  # in memory


class RunWriter:
    """The folder of a run that goes on; see ``run_directory`` for what is in it.

    Attributes:
        real_seconds: How long the run took up to the checkpoint that it goes on from; 0 for one that begins.
    """

    def __init__(self, path: Path, metrics: Iterable[str], checkpoint: Mapping[str, Any]) -> None:
        self._path = path
        self._folder = run_directory.unfinished(path)
        self._metrics = tuple(metrics)
        history, events = checkpoint.get("parts", (0, 0))
        self.real_seconds: float = checkpoint.get("real_seconds", 0.0)
        self._history = Parts(self._folder, "history", run_directory.history_schema(self._metrics), history)
        self._events = Parts(self._folder, "events", run_directory.EVENTS, events)

    @classmethod
    def begin(cls, path: Path, config: Mapping[str, Any], metrics: Iterable[str], versions: Mapping[str, str]) -> Self:
        """Begin a run that is to be at ``path``; an unfinished one is forgotten."""
        folder = run_directory.unfinished(path)
        with _told(path):
            run_directory.remove(folder)
            folder.mkdir(parents=True)
            # Last, so that where there are settings the rest is there too.
            _write(folder / "versions.json", _as_json(versions))
            _write(folder / "config.toml", tomli_w.dumps(config))
            return cls(path, metrics, {})

    @classmethod
    def resume(
        cls, path: Path, config: Mapping[str, Any], metrics: Iterable[str], versions: Mapping[str, str]
    ) -> tuple[Self, dict[str, Any] | None]:
        """Go on with the unfinished run that is to be at ``path``, or begin it.

        Returns:
            The writer, and the state that it was given last; None if it was never given one.

        Raises:
            OffbeatError: The unfinished run has other settings or was made with other versions of what the numbers
                depend on, or its checkpoint cannot be read.
        """
        folder = run_directory.unfinished(path)
        checkpoint = folder / "checkpoint.safetensors"
        run_directory.refuse_other(folder, config)
        if not checkpoint.exists():
            return cls.begin(path, config, metrics, versions), None
        check_versions(folder, versions)
        state = read_checkpoint(checkpoint)
        _check_parts(folder, state)
        with _told(path):
            return cls(path, metrics, state), state

    def add(self, evaluation: Evaluation | None, ended: list[VisitEnded]) -> None:
        """Add an evaluation, if there is one, and the visits that ended, which are taken out of the list."""
        if evaluation is not None:
            *numbers, metrics = evaluation
            self._history.add([*numbers, *(metrics[name] for name in self._metrics)])
        for visit in ended:
            self._events.add(visit)
        ended.clear()
        if len(self._events) > _MOST_ROWS:
            with _told(self._path):
                self._events.close_part()

    def checkpoint(self, state: Mapping[str, Any], real_seconds: float) -> None:
        """Write all rows up to now, and the state at this moment."""
        with _told(self._path):
            self._history.close_part()
            self._events.close_part()
            _write(self._folder / "timing.json", _as_json({"real_seconds": real_seconds}))
            parts = [self._history.number, self._events.number]
            write_checkpoint(
                self._folder / "checkpoint.safetensors", {**state, "parts": parts, "real_seconds": real_seconds}
            )

    def finish(self, model: Mapping[str, Tensor], real_seconds: float) -> None:
        """Put the whole run at its path; an earlier one there is gone only after this one stands."""
        whole = self._path.with_name(f".{self._path.name}.partial")
        with _told(self._path):
            try:
                self._history.close_part()
                self._events.close_part()
                run_directory.remove(whole)
                whole.mkdir()
                for name in ("config.toml", "versions.json"):
                    (whole / name).write_bytes((self._folder / name).read_bytes())
                self._history.join(whole / "history.parquet")
                self._events.join(whole / "events.parquet")
                (whole / "model.safetensors").write_bytes(save(dict(model)))
                _write(whole / "timing.json", _as_json({"real_seconds": real_seconds}))
                _sync(whole)
                _replace(self._path, whole)
                # The checkpoint may go only when what it leads to is there also after a power cut.
                _sync(self._path.parent)
            finally:
                run_directory.remove(whole)
        run_directory.remove(self._folder)


@contextmanager
def _told(path: Path) -> Generator[None]:
    """Make one line of what the disk refuses."""
    try:
        yield
    except OSError as error:
        raise OffbeatError(
            f"cannot write the run into {path}: {error.strerror or error}; free some space and go on with --resume, or "
            "choose another --output"
        ) from None


def _check_parts(folder: Path, state: Mapping[str, Any]) -> None:
    match state:
        case {"parts": [int(history), int(events)], "real_seconds": float()}:
            for name, parts in (("history", history), ("events", events)):
                if len(part_paths(folder, name)) < parts:
                    raise OffbeatError(f"{folder} lacks a part of its {name}: run again without --resume")
        case _:
            raise OffbeatError(f"{folder / 'checkpoint.safetensors'} is broken: run again without --resume")


def _as_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def _write(path: Path, content: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(content, encoding="utf-8")
    rename_durably(partial, path)


def _replace(path: Path, new: Path) -> None:
    """Put the folder ``new`` at ``path``; a folder that stood there is gone only after the new one stands."""
    old = path.with_name(f".{path.name}.old")
    run_directory.remove(old)
    if path.exists():
        path.rename(old)
    try:
        new.rename(path)
    except BaseException:
        if old.exists():
            old.rename(path)
        raise
    run_directory.remove(old)


def _sync(folder: Path) -> None:
    """Make sure that the folder's entries, and the files among them, are on disk."""
    for path in [*(file for file in folder.iterdir() if file.is_file() and not file.name.startswith(".")), folder]:
        if path.is_dir() and os.name == "nt":  # where a folder cannot be opened
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
