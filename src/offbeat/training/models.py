"""The built-in models."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from math import prod

import torch
from torch import nn

from offbeat.randomness import Purpose, integer


def softmax_regression(input_shape: Sequence[int], classes: int) -> nn.Module:
    """Return multinomial logistic regression: one linear layer that starts at zero."""
    layer = nn.Linear(prod(input_shape), classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def mlp(input_shape: Sequence[int], classes: int, hidden: Sequence[int]) -> nn.Module:
    """Return a multi-layer perceptron with ReLU, one hidden layer for each number of units in ``hidden``."""
    widths = [prod(input_shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


@contextmanager
def initial_randomness(seed: int) -> Generator[None]:
    """Make modules that are built inside start from the run's seed; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(integer(seed, Purpose.INITIAL_MODEL))
        yield
