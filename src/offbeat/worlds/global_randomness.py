"""Seeds for user code that draws from Python's, numpy's or torch's generators."""

import random
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def fixed_randomness(seed: int) -> Generator[None]:
    """Seed the global generators; afterwards they continue where they were."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002 - user code draws from it
    with torch.random.fork_rng(devices=[]):
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        torch.default_generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)  # noqa: NPY002
