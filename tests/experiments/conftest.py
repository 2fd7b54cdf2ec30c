import copy
import io
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from rich.console import Console

from offbeat.experiments.config import Experiment, load
from offbeat.experiments.progress import Progress

_TINY = tomllib.loads("""
seeds = [1]
[data]
name = "digits"
[model]
name = "softmax"
[local]
steps = 3
batch_size = 8
lr = 0.1
[population]
clients = 20
partition = { name = "dirichlet", alpha = 0.5 }
step_seconds = { distribution = "lognormal", median = 1.0, sigma = 1.0 }
down_bytes_per_second = { distribution = "constant", value = 1e5 }
up_bytes_per_second = { distribution = "pareto", minimum = 1e4, shape = 2.0 }
lossy = { fraction = 0.3, probability = 0.5 }
[server]
lease_seconds = 30.0
[algorithms.fedavg]
cohort = 4
[algorithms.fedasync]
concurrency = 4
[algorithms.fedbuff]
buffer_size = 2
concurrency = 4
[stop]
virtual_seconds = 60.0
[evaluate]
every_seconds = 20.0
target_accuracy = 0.5
""")


@pytest.fixture
def tiny() -> dict[str, Any]:
    """A small experiment's table: digits, 20 clients, some of them lossy, a second of real time or less."""
    return copy.deepcopy(_TINY)


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
        return Progress(Console(file=file or io.StringIO()), experiment.stop)

    return make
