"""Users' data as a data set."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import TensorDataset

from offbeat.data.dataset import Dataset
from offbeat.data.dataset_checks import check
from offbeat.errors import OffbeatError


def from_user(data: object, name: str) -> Dataset:
    """Return a user's data as a checked data set.

    Args:
        data: A ``Dataset``, or a pair (train, test) of map-style ``torch.utils.data.Dataset``: ``len(data)`` examples,
            of which ``data[i]`` is the pair (input, label), as tensors, numpy arrays or numbers.

            Inputs are floats of any width, or int32 or int64 token numbers, all of one shape. Labels are integers, the
            classes 0, 1, …, or floats of any shape, targets. An attribute ``users`` of the train data gives the user of
            each of its examples, as integers or strings; users are numbered in sorted order.
        name: The data set's name, for messages and in the result.

    Raises:
        OffbeatError: The data are something else; the message names the example.
    """
    if isinstance(data, Dataset):
        dataset = dataclasses.replace(data, name=name)
    else:
        if not isinstance(data, tuple | list) or len(data) != 2:
            raise OffbeatError(f"{name}: got {_describe(data)}: return a pair (train, test) of data sets, or a Dataset")
        train, test = data
        train_inputs, train_labels = _arrays(train, f"{name}: train")
        test_inputs, test_labels = _arrays(test, f"{name}: test")
        dataset = Dataset(
            name=name,
            train_inputs=train_inputs,
            train_labels=train_labels,
            test_inputs=test_inputs,
            test_labels=test_labels,
            classes=_count(train_labels, test_labels),
            tokens=_count(train_inputs, test_inputs),
            users=_users(train, len(train_inputs), name),
        )
    check(dataset)
    # torch refuses arrays with negative strides. Contiguous arrays are not copied: they may not fit into memory twice.
    arrays = {key: value for key, value in vars(dataset).items() if isinstance(value, np.ndarray)}
    return dataclasses.replace(dataset, **{key: np.require(value, None, "C") for key, value in arrays.items()})


def _describe(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a value of type {type(value).__name__}"


def _count(train: NDArray[Any], test: NDArray[Any]) -> int | None:
    """Return the largest number plus 1; None where one part holds floats."""
    if train.dtype != np.int64 or test.dtype != np.int64:
        return None
    # At least 1, so that the checks find a negative number and name its example.
    return max(int(train.max(initial=0)), int(test.max(initial=0))) + 1


def _arrays(data: Any, part: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return all examples' inputs and labels, float32 or int64."""
    try:
        size = len(data)
    except Exception as error:
        raise OffbeatError(f"{part}: {_describe(data)} has no length: give a map-style data set") from error
    if size == 0:
        raise OffbeatError(f"{part}: there are no examples: give at least one")
    if type(data) is TensorDataset and len(data.tensors) == 2:
        inputs, labels = (_array(tensor, part) for tensor in data.tensors)
        return _cast(inputs, _input_type(inputs, part)), _cast(labels, _label_type(labels, part))
    inputs, labels = _example(data, 0, part)
    all_inputs = np.empty((size, *inputs.shape), _input_type(inputs, f"{part} example 0"))
    all_labels = np.empty((size, *labels.shape), _label_type(labels, f"{part} example 0"))
    for index in range(size):
        inputs, labels = _example(data, index, part)
        where = f"{part} example {index}"
        _put(all_inputs, index, inputs, _input_type, "input", where)
        _put(all_labels, index, labels, _label_type, "label", where)
    return all_inputs, all_labels


def _put(
    values: NDArray[Any],
    index: int,
    value: NDArray[Any],
    type_of: Callable[[NDArray[Any], str], np.dtype[Any]],
    what: str,
    where: str,
) -> None:
    if value.shape != values.shape[1:]:
        raise OffbeatError(
            f"{where}: the {what} has shape {value.shape}, that of example 0 {values.shape[1:]}: use one shape"
        )
    if type_of(value, where) != values.dtype:
        raise OffbeatError(f"{where}: the {what} is {value.dtype}, not {values.dtype} like that of example 0")
    values[index] = _cast(value, values.dtype)


def _cast(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # The checks find the infinity that a value too large becomes.
        return values.astype(dtype, copy=False)


def _example(data: Any, index: int, part: str) -> tuple[NDArray[Any], NDArray[Any]]:
    where = f"{part} example {index}"
    try:
        item = data[index]
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise OffbeatError(f"{where} cannot be read: {reason}") from error
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise OffbeatError(f"{where} is {_describe(item)}: give the pair (input, label)")
    return _array(item[0], f"{where}, input"), _array(item[1], f"{where}, label")


def _array(value: Any, where: str) -> NDArray[Any]:
    try:
        if isinstance(value, Tensor):
            value = value.detach().cpu()
            # numpy has no bfloat16.
            return (value.float() if value.dtype == torch.bfloat16 else value).numpy()
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise OffbeatError(
            f"{where}: {_describe(value)} is not an array: give a tensor, a numpy array or a number"
        ) from error


def _input_type(values: NDArray[Any], where: str) -> np.dtype[Any]:
    if values.dtype.kind == "f":
        return np.dtype(np.float32)
    if values.dtype.name in ("int32", "int64"):
        return np.dtype(np.int64)
    raise OffbeatError(f"{where}: inputs are {values.dtype}: make images and other numbers floats, token numbers int64")


def _label_type(values: NDArray[Any], where: str) -> np.dtype[Any]:
    if values.dtype.kind == "f":
        return np.dtype(np.float32)
    if values.dtype.kind in "iu":
        return np.dtype(np.int64)
    raise OffbeatError(f"{where}: labels are {values.dtype}: make classes int64, targets float32")


def _users(train: Any, examples: int, name: str) -> NDArray[np.int64] | None:
    """Return each training example's user, numbered in sorted order."""
    users = getattr(train, "users", None)
    if users is None:
        return None
    try:
        values = users.tolist() if isinstance(users, Tensor | np.ndarray) else list(users)
    except TypeError as error:
        raise OffbeatError(f"{name}: users is {_describe(users)}: give one for each train example") from error
    if len(values) != examples:
        raise OffbeatError(f"{name}: {len(values)} users but {examples} train examples: give one for each")
    for kind in ((int, np.integer), str):
        if all(isinstance(value, kind) for value in values):
            numbers = {value: number for number, value in enumerate(sorted(set(values)))}
            return np.array([numbers[value] for value in values], np.int64)
    raise OffbeatError(f"{name}: users are neither all integers nor all strings: make them one or the other")
