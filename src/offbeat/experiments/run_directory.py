"""What a run leaves behind: one folder for each (algorithm, seed).

========================  ==========================================================================
``config.toml``           the resolved configuration; running it again gives the same numbers
``history.parquet``       a row an evaluation: virtual time, version, counts, bytes, accuracy, loss
``events.parquet``        a row a visit that ended: client, version, staleness, times, bytes, outcome
``model.safetensors``     the final model, by parameter name
``versions.json``         what the numbers depend on: Python, packages, trainer, threads
``timing.json``           real seconds; kept apart, since all the rest is the same each time
========================  ==========================================================================

A folder is written under another name and renamed when it is whole, so one that is there can be trusted.
"""

import json
import platform
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor

from offbeat.errors import OffbeatError

HISTORY = pa.schema(
    [
        ("seconds", pa.float64()),  # virtual time of the evaluation
        ("version", pa.int64()),
        ("counted", pa.int64()),  # client updates so far, by outcome
        ("unused", pa.int64()),
        ("lost", pa.int64()),
        ("bytes_down", pa.int64()),  # so far, all clients together
        ("bytes_up", pa.int64()),
        ("accuracy", pa.float64()),  # on the test set, 0 … 1
        ("loss", pa.float64()),
    ]
)

OUTCOMES = ("counted", "unused", "lost")
EVENTS = pa.schema(
    [
        ("client", pa.int64()),
        ("visit", pa.int64()),  # the client's 0th, 1st, … visit
        ("version", pa.int64()),  # the version that the client started from
        ("staleness", pa.int64()),  # versions made meanwhile
        ("assigned_seconds", pa.float64()),  # virtual time
        ("ended_seconds", pa.float64()),
        ("bytes_down", pa.int64()),
        ("bytes_up", pa.int64()),
        ("outcome", pa.dictionary(pa.int8(), pa.string())),
    ]
)

_PACKAGES = ("offbeat", "torch", "numpy", "scikit-learn", "pyarrow", "safetensors")

Columns = Mapping[str, NDArray[Any]]

_Content = TypeVar("_Content")


@dataclass(frozen=True)
class Run:
    """A finished run, as read from its folder."""

    path: Path
    label: str  # the name of its [algorithms.*] table
    seed: int
    config: dict[str, Any]
    history: Columns  # the columns of HISTORY
    events: Columns  # the columns of EVENTS; outcome holds strings
    real_seconds: float


@contextmanager
def prepared(folder: Path) -> Generator[None]:
    """Make sure, before any work is done, that results can be written into ``folder``, and by nobody else meanwhile.

    Raises:
        OffbeatError: The folder cannot be written, or another process is writing into it.
    """
    lock = FileLock(folder / ".lock", blocking=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
        lock.acquire()
    except Timeout:
        raise OffbeatError(f"another run is writing into {folder}; choose another folder with --output") from None
    except OSError as error:
        raise OffbeatError(
            f"cannot write into {folder}: {error.strerror}; choose another folder with --output"
        ) from None
    try:
        yield
    finally:
        (folder / ".lock").unlink(missing_ok=True)
        lock.release()


def write(
    path: Path,
    *,
    config: Mapping[str, Any],
    history: Mapping[str, list[Any]],
    events: Mapping[str, list[Any]],
    model: Mapping[str, Tensor],
    real_seconds: float,
) -> None:
    """Write a run into the folder ``path``; an earlier run there is replaced once the new one is whole."""
    partial = path.with_name(f".{path.name}.partial")
    _remove(partial)
    try:
        partial.mkdir(parents=True)
        (partial / "config.toml").write_text(tomli_w.dumps(config), encoding="utf-8")
        pq.write_table(pa.table(dict(history), schema=HISTORY), partial / "history.parquet")
        pq.write_table(pa.table(dict(events), schema=EVENTS), partial / "events.parquet")
        (partial / "model.safetensors").write_bytes(save(dict(model)))
        _write_json(partial / "versions.json", _versions())
        _write_json(partial / "timing.json", {"real_seconds": real_seconds})
        _replace(path, partial)
    except OSError as error:
        raise OffbeatError(
            f"cannot write the run into {path}: {error.strerror}; free some space or choose another --output"
        ) from None
    finally:
        _remove(partial)


def check_replaceable(path: Path, config: Mapping[str, Any]) -> None:
    """Raise ``OffbeatError`` if ``path`` holds a run with other settings than ``config``."""
    try:
        there = tomllib.loads((path / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if there != tomllib.loads(tomli_w.dumps(config)):
        raise OffbeatError(
            f"{path} holds a run with other settings: choose another folder with --output, or add --replace"
        )


def read(path: Path) -> Run:
    """Read the run in the folder ``path``.

    Raises:
        OffbeatError: A file is missing or broken.
    """
    config, label, seed = _read(path / "config.toml", _config)
    real_seconds = _read(path / "timing.json", _real_seconds)
    history = _read(path / "history.parquet", _columns)
    events = _read(path / "events.parquet", _columns)
    return Run(path, label, seed, config, history, events, real_seconds)


def _read(file: Path, reader: Callable[[Path], _Content]) -> _Content:
    try:
        return reader(file)
    except FileNotFoundError:
        problem = f"{file.name} is missing"
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException):
        problem = f"{file.name} is broken"
    raise OffbeatError(f"{file.parent} is not a run: {problem}; name a folder that `offbeat run` wrote")


def _config(path: Path) -> tuple[dict[str, Any], str, int]:
    config = tomllib.loads(path.read_text(encoding="utf-8"))
    (label,), (seed,) = config["algorithms"], config["seeds"]
    return config, label, seed


def _real_seconds(path: Path) -> float:
    return json.loads(path.read_text(encoding="utf-8"))["real_seconds"]


def _columns(path: Path) -> Columns:
    table = pq.read_table(path)
    return {
        name: np.asarray(table[name].to_pylist())
        if pa.types.is_dictionary(table.schema.field(name).type)
        else table[name].to_numpy()
        for name in table.column_names
    }


def _versions() -> dict[str, str]:
    packages = {name: metadata.version(name) for name in _PACKAGES}
    # More threads add up in another order, which shows in the last bits.
    return {"python": platform.python_version(), **packages, "trainer": "loop", "threads": str(torch.get_num_threads())}


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _replace(path: Path, new: Path) -> None:
    """Put the folder ``new`` at ``path``; a folder that stood there is gone only after the new one stands."""
    old = path.with_name(f".{path.name}.old")
    _remove(old)
    if path.exists():
        path.rename(old)
    try:
        new.rename(path)
    except BaseException:
        if old.exists():
            old.rename(path)
        raise
    _remove(old)


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
