import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from offbeat.config.experiment_file import Experiment
from offbeat.runs.progress import Progress
from offbeat.runs.run_all import run_all

ALL = ["fedavg", "fedasync", "fedbuff"]

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))

def loss(outputs, labels):
    return nn.functional.multi_margin_loss(outputs, labels)

def score(outputs, labels):
    return (outputs.argmax(1) == labels).float().mean()
"""


@pytest.fixture
def run(progress: Callable[..., Progress], tmp_path: Path) -> Callable[..., str]:
    """Return a function that runs an experiment's algorithms into a folder, and returns its output."""

    def all_into(experiment: Experiment, folder: str, labels: list[str] = ALL, **how: Any) -> str:
        screen = io.StringIO()
        run_all(experiment, labels, tmp_path / folder, progress(experiment, screen), **how)
        return screen.getvalue()

    return all_into
