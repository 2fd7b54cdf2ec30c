"""Counting what clients hold."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

Parts = list[NDArray[np.int64]]


@pytest.fixture(scope="session")
def class_counts() -> Callable[[Parts, NDArray[np.int64]], NDArray[np.int64]]:
    """Return a function that counts examples of each class of each client.

    Its result is ``(classes, clients)``.
    """

    def count(parts: Parts, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.stack([np.bincount(labels[part], minlength=labels.max() + 1) for part in parts], axis=1)

    return count
