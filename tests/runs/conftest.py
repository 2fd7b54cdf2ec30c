import io

import pytest

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
def run(progress, tmp_path):
    """Return a function that runs an experiment's algorithms into a folder, and returns its output."""

    def all_into(experiment, folder, labels=ALL, **how):
        screen = io.StringIO()
        run_all(experiment, labels, tmp_path / folder, progress(experiment, screen), **how)
        return screen.getvalue()

    return all_into
