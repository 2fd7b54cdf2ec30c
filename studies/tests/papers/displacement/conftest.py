import numpy as np
import pytest
import torch

from offbeat_studies.papers.displacement import runs, world
from offbeat_studies.papers.displacement.world import Data


@pytest.fixture
def tiny_data(monkeypatch):
    """Put 400 points in two dimensions, of two labels, in place of Fashion-MNIST."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 400)
    inputs = torch.from_numpy(random.normal(0, 0.7, (400, 2)) + 2 * labels[:, None] - 1).float()
    inputs = torch.nn.functional.pad(inputs, (0, 1), value=1.0)
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(labels)).float()
    data = Data(inputs, one_hot, labels, inputs[::4], torch.from_numpy(labels[::4]))
    world.visits.cache_clear()
    for module in (world, runs):
        monkeypatch.setattr(module, "load_data", lambda _: data)
    yield data
    world.visits.cache_clear()
