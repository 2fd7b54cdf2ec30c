import io

import pytest
from offbeat_core.errors import OffbeatError
from rich.console import Console

from offbeat.config.experiment_file import load
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


def names(folder):
    return {path.name for path in folder.iterdir()}


def error_line(call):
    """Return the one line of the error that a call raises."""
    with pytest.raises(OffbeatError) as caught:
        call()
    return str(caught.value)


@pytest.fixture
def run(progress, tmp_path):
    """Return a function that runs an experiment's algorithms into a folder, and returns its output."""

    def all_into(experiment, folder, labels=ALL, **how):
        screen = io.StringIO()
        run_all(experiment, labels, tmp_path / folder, progress(experiment, screen), **how)
        return screen.getvalue()

    return all_into


@pytest.fixture(scope="session")
def tiny_runs(tmp_path_factory, tiny_toml):
    """The folder with the runs of the small experiment, and their output."""
    folder, screen = tmp_path_factory.mktemp("tiny"), io.StringIO()
    (folder / "tiny.toml").write_text(tiny_toml, encoding="utf-8")
    here = load(folder / "tiny.toml")
    run_all(here, ALL, folder / "out", Progress(Console(file=screen), here.stop, "accuracy"))
    return folder / "out", screen.getvalue()
