"""Users' data as a data set."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError, setting
from offbeat_core.number_checks import plain_number
from torch import Tensor
from torch.utils.data import ConcatDataset, Subset

from offbeat.data.dataset import Dataset
from offbeat.data.dataset_checks import check
from offbeat.data.user_examples import Collate, collate_examples, describe, read_examples
from offbeat.model_inputs import map_inputs, token_numbers


def from_user(data: object, name: str, *, collate: Collate | None = None) -> Dataset:
    """Return a user's data as a checked data set.

    Args:
        data: A ``Dataset``, or a pair (train, test). Each part is a map-style ``torch.utils.data.Dataset``, a Hugging
            Face ``Dataset``, or a pair of arrays (inputs, labels). A map-style data set has ``len(data)`` examples, of
            which ``data[i]`` is the pair (input, label), or a dict of inputs with ``labels`` (or ``label``), as
            tensors, numpy arrays or numbers. Inputs by name are the model's keyword arguments.

            Inputs are floats of any width, or int32 or int64 token numbers, by name also bool; each of one shape.
            Labels are integers, floats or booleans of any shape that the loss takes; one integer from 0 for each
            example is its class. An attribute ``users`` of the train data gives the user of each of its examples, as
            integers or strings; users are numbered in sorted order. A ``Subset`` or ``ConcatDataset`` of PyTorch has
            those of the data sets that it is made of.
        name: The data set's name, for messages and in the result.
        collate: Makes a batch, a pair or dict as above, of a list of examples; called once, with all of train and test.

    Raises:
        OffbeatError: The data are something else; the message names the example.
    """
    if isinstance(data, Dataset):
        if collate is not None:
            key = setting("data.collate")
            raise OffbeatError(f"{name}: {key} is for examples, but the data are arrays: leave it out")
        dataset = dataclasses.replace(data, name=name)
    else:
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise OffbeatError(f"{name}: got {describe(data)}: return a pair (train, test) of data sets, or a Dataset")
        parts = {f"{name}: train": data[0], f"{name}: test": data[1]}
        train, test = (
            [read_examples(part, key) for key, part in parts.items()]
            if collate is None
            else collate_examples(parts, collate)
        )
        dataset = Dataset(
            name=name,
            train_inputs=train.inputs,
            train_labels=train.labels,
            test_inputs=test.inputs,
            test_labels=test.labels,
            classes=_classes(train.labels, test.labels),
            tokens=_count(token_numbers(train.inputs), token_numbers(test.inputs)),
            users=_users(data[0], len(np.atleast_1d(train.labels)), name),
        )
    check(dataset)
    # torch refuses arrays with negative strides. Contiguous arrays are not copied: they may not fit into memory twice.
    arrays = {key: value for key, value in vars(dataset).items() if isinstance(value, np.ndarray | dict)}
    return dataclasses.replace(
        dataset, **{key: map_inputs(lambda array: np.require(array, None, "C"), value) for key, value in arrays.items()}
    )


def _classes(train: NDArray[Any], test: NDArray[Any]) -> int | None:
    """Return the number of classes; None where the labels are not one class each."""
    is_one_each = train.ndim == test.ndim == 1
    return _count(train, test) if is_one_each and min(train.min(initial=0), test.min(initial=0)) >= 0 else None


def _count(train: NDArray[Any] | None, test: NDArray[Any] | None) -> int | None:
    """Return the largest number plus 1; None where one part holds floats or nothing."""
    if train is None or test is None or train.dtype != np.int64 or test.dtype != np.int64:
        return None
    # At least 1, so that the checks find a negative number and name its example.
    return max(int(train.max(initial=0)), int(test.max(initial=0))) + 1


def _users(train: Any, examples: int, name: str) -> NDArray[np.int64] | None:
    """Return each training example's user, numbered in sorted order."""
    values = _find_users(train, name)
    if values is None:
        return None
    if len(values) != examples:
        raise OffbeatError(f"{name}: {len(values)} users but {examples} train examples: give one for each")
    is_text = isinstance(values[0], str)
    kind = str if is_text else int | np.integer
    for index, value in enumerate(values):
        if not isinstance(value, kind) or isinstance(value, bool):
            raise OffbeatError(
                f"{name}: users are neither all integers nor all strings: example {index} has {value!r}, make them one "
                "or the other"
            )
    numbers = {value: number for number, value in enumerate(sorted(set(values)))}
    return np.array([numbers[value] for value in values], np.int64)


def _find_users(data: Any, name: str) -> list[Any] | None:
    """Return the attribute ``users`` of a data set.

    That of a subset or a concatenation is made of its parts'. None if there is none.
    """
    users = getattr(data, "users", None)
    if users is not None:
        try:
            if isinstance(users, Tensor | np.ndarray):
                return users.tolist()
            listed = users.to_pylist() if hasattr(users, "to_pylist") else users  # the former of pyarrow
            return [plain_number(user) for user in listed]
        except TypeError as error:
            raise OffbeatError(f"{name}: users is {describe(users)}: give one for each train example") from error
    if isinstance(data, Subset):
        users = _find_users(data.dataset, name)
        if users is None:
            return None
        size = len(data.dataset)  # pyright: ignore[reportArgumentType]
        if len(users) != size:
            raise OffbeatError(
                f"{name}: {len(users)} users but {size} examples in the data set of which train is a subset: give one "
                "for each"
            )
        return [users[index] for index in data.indices]
    if isinstance(data, ConcatDataset):
        parts = [_find_users(part, name) for part in data.datasets]
        found = [part for part in parts if part is not None]
        if found and len(found) < len(parts):
            raise OffbeatError(
                f"{name}: users are missing in part {parts.index(None)} of train: give them for all parts"
            )
        return [user for part in found for user in part] if found else None
    return None
