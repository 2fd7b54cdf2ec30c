import random

import numpy as np
import torch

from offbeat.worlds.global_randomness import fixed_randomness


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), torch.rand(1).item()  # noqa: NPY002 - as users' code does


def test_all_generators_begin_from_the_seed_and_are_left_as_they_were():
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    with fixed_randomness(2**62 + 5):
        first = draw()
    outside = draw()
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    torch.manual_seed(1)
    assert draw() == outside
    with fixed_randomness(2**62 + 5):
        assert draw() == first
    with fixed_randomness(3):
        assert not set(draw()) & set(first)
