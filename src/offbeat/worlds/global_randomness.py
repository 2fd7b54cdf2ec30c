"""Random numbers for the user's own code, which draws them from the libraries' global generators."""

import random
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def fixed_randomness(seed: int) -> Generator[None]:
    """Let Python's, numpy's and torch's global generators begin from the seed; afterwards they are as they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - users' code draws from it
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
