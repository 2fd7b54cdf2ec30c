"""A data set in memory, before it is divided among the clients."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.errors import OffbeatError


class MissingDataError(OffbeatError):
    """A data set is nowhere to be found; the message says how to get it."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples for training, and others for testing.

    Attributes:
        name: The data set's name in a configuration.
        train_inputs: ``(n, *input_shape)``, float32, or int64 where they are numbers of tokens.
        train_labels: ``(n, …)``: int64 class numbers from 0, ``(n,)``, or float32 targets.
        test_inputs: ``(m, *input_shape)``, like ``train_inputs``.
        test_labels: ``(m, …)``, like ``train_labels``.
        classes: How many classes there are; None where the labels are no classes.
        tokens: How many tokens there are, where the inputs are their numbers: 0 … tokens − 1.
        users: int64 ``(n,)``, which user 0 … U − 1 each training example is from, where that is known.
    """

    name: str
    train_inputs: NDArray[Any]
    train_labels: NDArray[Any]
    test_inputs: NDArray[Any]
    test_labels: NDArray[Any]
    classes: int | None
    tokens: int | None = None
    users: NDArray[np.int64] | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example's input, for instance (channels, height, width)."""
        return self.train_inputs.shape[1:]

    @cached_property
    def fingerprint(self) -> str:
        """The beginning of a hash of all examples: the same for the same data."""
        digest = hashlib.blake2b(digest_size=8)
        for array in (self.train_inputs, self.train_labels, self.test_inputs, self.test_labels):
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()
