from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from offbeat.runs.writer import RunWriter
from offbeat.simulation.totals import Evaluation

MODEL = {"weight": torch.ones(2)}


def begin(
    folder: Path, label: str = "mine", lr: float = 0.1, code: str = "a1", how: Callable[..., Any] = RunWriter.begin
) -> Any:
    """Begin a run of seed 7, or resume it."""
    config = {
        "name": "digits at night",
        "seeds": [7],
        "algorithms": {label: {"algorithm": "fedavg"}},
        "local": {"lr": lr},
        "evaluate": {"metrics": ["accuracy"]},
    }
    return how(folder / f"{label}-seed7", config, ["accuracy"], {"torch": "2", "/own.py": code})


def evaluation(number: int) -> Evaluation:
    """Return a run's evaluation; 10 s, 3 updates and 0.1 in accuracy after the one before."""
    return Evaluation(10.0 * number, number, 3 * number, 0, 0, 100, 40, 0.5, 2.5, {"accuracy": number / 10})


def add(writer: RunWriter, numbers: range) -> None:
    """Add evaluations, and write them."""
    for number in numbers:
        writer.add(evaluation(number), [])
    writer.checkpoint({}, 1.0)


def go_on(folder: Path) -> None:
    """Let the run of the folder that has begun end, with a third evaluation."""
    writer = begin(folder)
    add(writer, range(3))
    writer.finish(MODEL, 1.0)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with a finished run of three evaluations, and one that has begun with two."""
    folder = tmp_path / "runs"
    done = begin(folder, "done")
    add(done, range(3))
    done.finish(MODEL, 1.0)
    add(begin(folder), range(2))
    return folder
