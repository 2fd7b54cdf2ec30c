import copy
import io
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from rich.console import Console

from offbeat.config.experiment_file import Experiment, load
from offbeat.config.experiment_sections import metric_name
from offbeat.data.catalogue import load_dataset
from offbeat.data.dataset import Dataset
from offbeat.runs.progress import Progress

MISSING = object()


@pytest.fixture
def tiny(tiny_toml: str) -> dict[str, Any]:
    """The small experiment's table."""
    return tomllib.loads(tiny_toml)


@pytest.fixture
def changed() -> Callable[..., dict[str, Any]]:
    """Return a function that copies a table with a value at a dotted key, or without the key if no value is given."""

    def copied(table: dict[str, Any], key: str, value: Any = MISSING) -> dict[str, Any]:
        table = copy.deepcopy(table)
        *parents, last = key.split(".")
        inner = table
        for parent in parents:
            inner = inner.setdefault(parent, {})
        if value is MISSING:
            del inner[last]
        else:
            inner[last] = value
        return table

    return copied


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a table, or a text, as a TOML file."""

    def make(content: dict[str, Any] | str, name: str = "some-name.toml") -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else tomli_w.dumps(content), encoding="utf-8")
        return path

    return make


@pytest.fixture
def experiment(tmp_path: Path, tiny: dict[str, Any]) -> Callable[..., Experiment]:
    """Return a function that loads the small experiment, changed as by ``--set``."""

    def make(*changes: str) -> Experiment:
        path = tmp_path / "tiny.toml"
        path.write_text(tomli_w.dumps(tiny), encoding="utf-8")
        return load(path, changes)

    return make


@pytest.fixture
def progress() -> Callable[..., Progress]:
    """Return a function that makes the progress display of an experiment; it writes into the given file."""

    def make(experiment: Experiment, file: io.StringIO | None = None) -> Progress:
        metric = metric_name(experiment.metrics[0]) if experiment.metrics else None
        return Progress(Console(file=file or io.StringIO()), experiment.stop, metric)

    return make


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture
def files() -> Callable[[Path], dict[str, bytes]]:
    """Return a function that reads all files below a folder but ``timing.json``, which alone may differ."""

    def read(folder: Path) -> dict[str, bytes]:
        paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "timing.json"]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}

    return read
