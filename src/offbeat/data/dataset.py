"""A data set in memory, before it is divided among the clients."""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.model_inputs import Inputs, name_inputs


class MissingDataError(OffbeatError):
    """A data set that is not found; the message says how to get it."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples for training and for testing.

    Attributes:
        name: The data set's name in a configuration.
        train_inputs: ``(n, *input_shape)``, float32, or int64 token numbers. Or several arrays by name, the model's
            keyword arguments, float32, int64 or bool, of which ``input_ids`` are token numbers.
        train_labels: int64 class numbers from 0, ``(n,)``, or targets ``(n, …)``, float32, int64 or bool.
        test_inputs: ``(m, *input_shape)``, like ``train_inputs``.
        test_labels: ``(m, …)``, like ``train_labels``.
        classes: Number of classes; None where the labels are targets, such as one for each token or pixel.
        tokens: Number of tokens, where inputs are token numbers 0 … tokens − 1.
        users: The user 0 … U − 1 of each training example, int64 ``(n,)``, where it is known.

    Examples:
        >>> inputs, labels = np.zeros((30, 4), np.float32), np.arange(30) % 3
        >>> data = Dataset("mine", inputs, labels, inputs[:9], labels[:9], classes=3)
        >>> data.input_shape
        (4,)
    """

    name: str
    train_inputs: Inputs[NDArray[Any]]
    train_labels: NDArray[Any]
    test_inputs: Inputs[NDArray[Any]]
    test_labels: NDArray[Any]
    classes: int | None
    tokens: int | None = None
    users: NDArray[np.int64] | None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example's input, for instance (channels, height, width).

        Raises ``OffbeatError`` if there are several inputs by name.
        """
        if isinstance(self.train_inputs, dict):
            raise OffbeatError(
                f"{self.name} has inputs by name ({', '.join(self.train_inputs)}): use a model of your own"
            )
        return self.train_inputs.shape[1:]

    @cached_property
    def fingerprint(self) -> str:
        """The first 16 digits of a hash of all examples."""
        digest = hashlib.blake2b(digest_size=8)
        for inputs, labels in ((self.train_inputs, self.train_labels), (self.test_inputs, self.test_labels)):
            if isinstance(inputs, dict):
                digest.update(" ".join(sorted(inputs)).encode())
            for _, array in [*sorted(name_inputs("", inputs).items()), ("", labels)]:
                digest.update(f"{array.dtype} {array.shape}".encode())
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()
