"""Run folders, one for each (algorithm, seed): their files, columns and locks.

========================  ==========================================================================
``config.toml``           the resolved configuration; running it again gives the same numbers
``history.parquet``       a row for each evaluation: virtual time, version, counts, bytes, loss, metrics
``events.parquet``        a row for each visit that ended: client, version, staleness, times, bytes, outcome
``clients.parquet``       with ``evaluate.on_clients``, a row for each client's evaluation: version, loss, metrics
``model.safetensors``     the final model, by parameter name
``labels.json``           its accuracy on the test examples of each label, where accuracy is measured
``bounds.json``           the bounds of the experiment's own metrics, if some have any
``client_time.json``      how many clients there are, and how long they waited and worked, all together
``versions.json``         versions that the numbers depend on: Python, packages, trainer, threads
``timing.json``           real and processor seconds, date, machine, commit, and notes such as that a GPU's memory
                          ran out; a file of its own, because all other files are equal in every run
========================  ==========================================================================

The folder of an unfinished run ends in ``.unfinished``: its tables are in chunks, its state after the last chunk is in
``checkpoint.safetensors``. A finished run's folder is written under another name and renamed, so it is complete.
"""

import json
import math
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout
from offbeat_core.errors import OffbeatError

from offbeat.metric_bounds import Bounds
from offbeat.runs.parquet_chunks import Columns, chunk_paths, read_columns
from offbeat.simulation.client_time import ClientTime
from offbeat.training.trainer_names import TRAINING_LOSS

OUTCOMES = ("counted", "unused", "lost")

EVENTS = pa.schema(
    [
        ("client", pa.int64()),
        ("visit", pa.int64()),  # the client's 0th, 1st, … visit
        ("version", pa.int64()),  # the version that the client started from
        ("staleness", pa.int64()),  # versions made during the visit
        ("assigned_seconds", pa.float64()),  # virtual time
        ("ended_seconds", pa.float64()),
        ("bytes_down", pa.int64()),
        ("bytes_up", pa.int64()),
        ("outcome", pa.string()),
    ]
)

_Content = TypeVar("_Content")


def history_schema(metrics: Sequence[str]) -> pa.Schema:
    """Return the columns of ``history.parquet`` for a run with these metrics."""
    return pa.schema(
        [
            ("seconds", pa.float64()),  # virtual time of the evaluation
            ("version", pa.int64()),
            ("counted", pa.int64()),  # client updates so far, by outcome
            ("unused", pa.int64()),
            ("lost", pa.int64()),
            ("bytes_down", pa.int64()),  # so far, of all clients
            ("bytes_up", pa.int64()),
            ("displacement", pa.float64()),  # the length of the model's way so far
            ("loss", pa.float64()),  # mean on the test set
            *((metric, pa.float64()) for metric in metrics),  # on the test set
        ]
    )


def table_schemas(config: Mapping[str, Any], metrics: Sequence[str]) -> dict[str, pa.Schema]:
    """Return the schemas of a run's tables; ``clients`` only if clients evaluate."""
    tables = {"history": history_schema(metrics), "events": EVENTS}
    if "on_clients" in config.get("evaluate", {}):
        tables["clients"] = clients_schema([name for name in _metric_names(config) if name != TRAINING_LOSS])
    return tables


def clients_schema(metrics: Sequence[str]) -> pa.Schema:
    """Return the columns of ``clients.parquet`` for a run whose clients measure these."""
    return pa.schema(
        [
            ("seconds", pa.float64()),  # virtual time of the evaluation
            ("version", pa.int64()),
            ("client", pa.int64()),
            ("examples", pa.int64()),  # held out
            ("loss", pa.float64()),
            *((metric, pa.float64()) for metric in metrics),
        ]
    )


@dataclass(frozen=True)
class Run:
    """A run, as read from its folder."""

    path: Path
    label: str  # the name of its [algorithms.*] table
    seed: int
    config: dict[str, Any]
    history: Columns  # the columns of history_schema
    events: Columns  # the columns of EVENTS; outcome holds strings
    real_seconds: float
    finished: bool = True
    processor_seconds: float | None = None  # of the process that ran it; None if it was not measured


@contextmanager
def lock_folder(folder: Path, name: str = ".lock") -> Generator[None]:
    """Make the folder, check that it can be written, and lock it with a file.

    The file says which process has it.
    """
    lock = FileLock(folder / name, blocking=False)
    with disk_errors(f"into {folder}", "choose another folder with --output"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        try:
            lock.acquire()
        except Timeout:
            raise OffbeatError(f"another run is writing into {folder}: wait for it, or choose another folder") from None
    try:
        describe_lock(folder, (), name)
        yield
    finally:
        (folder / name).unlink(missing_ok=True)
        lock.release()


def describe_lock(folder: Path, runs: Sequence[str], name: str = ".lock") -> None:
    """Write into the lock of this process which runs it carries out."""
    with suppress(OSError):  # Windows lets nobody write into it
        (folder / name).write_text(json.dumps({"process": os.getpid(), "runs": list(runs)}), encoding="utf-8")


@contextmanager
def disk_errors(what: str, advice: str) -> Generator[None]:
    """Turn an error of the disk into one line: what cannot be written, why, advice."""
    try:
        yield
    except OSError as error:
        raise OffbeatError(f"cannot write {what}: {error.strerror or error}; {advice}") from None


def unfinished_path(path: Path) -> Path:
    """Return the folder of a run until it is finished and moves to ``path``."""
    return path.with_name(f"{path.name}.unfinished")


def read(path: Path) -> Run:
    """Read the run in the folder ``path``; if it is unfinished, its chunks.

    Raises:
        OffbeatError: A file is missing or broken.
    """
    config, label, seed = read_settings(path)
    finished = is_finished(path)
    # The first checkpoint writes the time and the first chunks.
    has_time = finished or (path / "timing.json").exists()
    real_seconds, processor_seconds = _read(path / "timing.json", _seconds) if has_time else (0.0, None)
    history = read_history(path, config)
    if finished:
        events = _read(path / "events.parquet", lambda file: read_columns([file]))
    else:
        events = _read(path / "events", lambda file: _read_chunks(file, EVENTS))
    return Run(path, label, seed, config, history, events, real_seconds, finished, processor_seconds)


def is_finished(path: Path) -> bool:
    """Return whether a run's folder is that of a finished run."""
    return not path.name.endswith(".unfinished")


def read_settings(path: Path) -> tuple[dict[str, Any], str, int]:
    """Return the configuration, the label and the seed of the run in a folder."""
    return _read(path / "config.toml", _config)


def read_versions(path: Path) -> dict[str, str]:
    """Return the versions that the numbers of the run in a folder depend on."""
    return _read(path / "versions.json", lambda file: dict(json.loads(file.read_text(encoding="utf-8"))))


def read_history(path: Path, config: Mapping[str, Any]) -> Columns:
    """Return the history of the run with that configuration.

    If it is unfinished, these are its chunks.
    """
    if is_finished(path):
        return _read(path / "history.parquet", lambda file: read_columns([file]))
    schema = _read(path / "config.toml", lambda _: history_schema(_metric_names(config)))
    return _read(path / "history", lambda file: _read_chunks(file, schema))


def read_clients(run: Run) -> Columns | None:
    """Read the clients' evaluations of a run; None if clients did not evaluate."""
    paths = [run.path / "clients.parquet"] if run.finished else chunk_paths(run.path, "clients")
    if not all(path.is_file() for path in paths) or not paths:
        return None
    return _read(run.path / "clients.parquet", lambda _: _numbers(read_columns(paths)))


def read_labels(run: Run) -> dict[str, float]:
    """Read the accuracy of a run's final model by label; empty if it was not measured."""
    path = run.path / "labels.json"
    return _read(path, _shares) if path.is_file() else {}


def read_client_time(run: Run) -> ClientTime | None:
    """Read how long the clients of a finished run waited; None without that file."""
    path = run.path / "client_time.json"
    return _read(path, _client_time) if path.is_file() else None


def read_bounds(run: Run) -> dict[str, Bounds]:
    """Read the bounds of a finished run's own metrics; empty without that file."""
    path = run.path / "bounds.json"
    return _read(path, _pairs) if path.is_file() else {}


def _pairs(file: Path) -> dict[str, Bounds]:
    found = {name: (float(low), float(high)) for name, (low, high) in json.loads(file.read_bytes()).items()}
    if not all(low < high for low, high in found.values()):
        raise ValueError("bounds that are not possible")
    return found


def _client_time(file: Path) -> ClientTime:
    times = json.loads(file.read_bytes())
    waiting, working = (float(times[name]) for name in ("waiting_seconds", "working_seconds"))
    clients = int(times["clients"])
    if clients < 1 or not (0 <= waiting < math.inf and 0 <= working < math.inf):
        raise ValueError("no clients, or a time that is not possible")
    return ClientTime(clients, waiting, working)


def _shares(file: Path) -> dict[str, float]:
    shares = json.loads(file.read_bytes())
    return {str(int(label)): float(share) for label, share in shares.items()}


def _numbers(columns: Columns) -> Columns:
    if "seconds" not in columns or not all(np.issubdtype(values.dtype, np.number) for values in columns.values()):
        raise ValueError("a column of numbers is missing")
    return columns


def _read(file: Path, reader: Callable[[Path], _Content]) -> _Content:
    try:
        return reader(file)
    except FileNotFoundError:
        problem = f"{file.name} is missing"
    except (OSError, ValueError, LookupError, TypeError, AttributeError, pa.ArrowException):
        problem = f"{file.name} is broken"
    raise OffbeatError(f"{file.parent} is not a run: {problem}; name a folder that `offbeat run` wrote")


def _config(path: Path) -> tuple[dict[str, Any], str, int]:
    config = tomllib.loads(path.read_text(encoding="utf-8"))
    (label,), (seed,) = config["algorithms"], config["seeds"]
    return config, label, seed


def _metric_names(config: Mapping[str, Any]) -> list[str]:
    return [metric.rpartition(":")[2] for metric in config["evaluate"]["metrics"]]


def _seconds(path: Path) -> tuple[float, float | None]:
    timing = json.loads(path.read_text(encoding="utf-8"))
    return timing["real_seconds"], timing.get("processor_seconds")


def _read_chunks(path: Path, schema: pa.Schema) -> Columns:
    paths = chunk_paths(path.parent, path.name)
    return read_columns(paths) if paths else {name: schema.empty_table()[name].to_numpy() for name in schema.names}


def remove(folder: Path) -> None:
    """Remove a folder, if it exists; a kill leaves it whole, or hidden."""
    hidden = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(hidden, ignore_errors=True)
    if folder.is_dir():
        folder.rename(hidden)
    shutil.rmtree(hidden, ignore_errors=True)
