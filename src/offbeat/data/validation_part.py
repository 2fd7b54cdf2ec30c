"""The validation part: training examples that take the test set's place."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose, generator

from offbeat.data.dataset import Dataset
from offbeat.model_inputs import map_inputs, name_inputs


def with_validation_part(dataset: Dataset, share: float) -> Dataset:
    """Return a data set whose test examples are a share of the training examples.

    The others are trained on, in their order; the test set is left out. The part is the same in every run. Where the
    users are known, each gives this share of its examples, rounded down.

    Raises:
        OffbeatError: A part would be empty, or the examples are on disk, and a part of them may not fit into memory.
    """
    if any(isinstance(array, np.memmap) for array in name_inputs("", dataset.train_inputs).values()):
        raise OffbeatError("the training examples are on disk: return them and their validation part from data.name")
    examples = len(dataset.train_labels)
    is_validation = np.zeros(examples, dtype=np.bool_)
    order = generator(0, Purpose.VALIDATION).permutation(examples)
    users = np.zeros(examples, np.int64) if dataset.users is None else dataset.users
    by_user = order[np.argsort(users[order], kind="stable")]
    _, firsts, counts = np.unique(users[by_user], return_index=True, return_counts=True)
    for first, count in zip(firsts.tolist(), counts.tolist(), strict=True):
        is_validation[by_user[first : first + math.floor(share * count)]] = True
    if not is_validation.any():
        raise OffbeatError(f"{examples:,} training examples are too few for a validation part of {share:g} of them")

    def train(array: NDArray[Any]) -> NDArray[Any]:
        return array[~is_validation]

    def test(array: NDArray[Any]) -> NDArray[Any]:
        return array[is_validation]

    return replace(
        dataset,
        train_inputs=map_inputs(train, dataset.train_inputs),
        train_labels=train(dataset.train_labels),
        test_inputs=map_inputs(test, dataset.train_inputs),
        test_labels=test(dataset.train_labels),
        users=None if dataset.users is None else train(dataset.users),
    )
