"""A data set in memory, before it is divided among the clients."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError


class MissingDataError(OffbeatError):
    """A data set is nowhere to be found; the message says how to get it."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled examples for training, and others for testing.

    Attributes:
        name: The data set's name in a configuration.
        train_inputs: ``(n, *input_shape)`` float32.
        train_labels: ``(n,)`` int64, values in 0 … classes − 1.
        test_inputs: ``(m, *input_shape)`` float32.
        test_labels: ``(m,)`` int64, values in 0 … classes − 1.
        classes: How many classes there are.
    """

    name: str
    train_inputs: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_inputs: NDArray[np.float32]
    test_labels: NDArray[np.int64]
    classes: int

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example's input, for instance (channels, height, width)."""
        return self.train_inputs.shape[1:]
