"""Whether a data set is as ``Dataset`` says, with a line that names the first example that is not."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.data.dataset import Dataset
from offbeat.errors import OffbeatError

_BLOCK = 2**16  # values that are looked at together: all of them may be more than fit into memory

_ARRAYS = ("train_inputs", "train_labels", "test_inputs", "test_labels")


def check(dataset: Dataset) -> None:
    """Check a data set that somebody else made.

    Raises:
        OffbeatError: An array of another type or shape than ``Dataset`` describes, an empty part, NaN or infinity,
            labels, tokens or users out of range.
    """
    name = dataset.name
    for field in _ARRAYS:
        array: Any = getattr(dataset, field)
        if not isinstance(array, np.ndarray):
            raise OffbeatError(f"{name}: {field} is a {type(array).__name__}: make it a numpy array")
        if array.dtype not in (np.float32, np.int64):
            raise OffbeatError(f"{name}: {field} are {array.dtype}: make them float32, or int64 for {_whole(field)}")
        if array.ndim == 0 or len(array) == 0:
            raise OffbeatError(f"{name}: {field} are empty: give at least one example")
    _check_alike(name, "inputs", dataset.train_inputs, dataset.test_inputs)
    _check_alike(name, "labels", dataset.train_labels, dataset.test_labels)
    for part in ("train", "test"):
        inputs, labels = getattr(dataset, f"{part}_inputs"), getattr(dataset, f"{part}_labels")
        if len(inputs) != len(labels):
            raise OffbeatError(f"{name}: {len(inputs)} {part}_inputs but {len(labels)} {part}_labels: give as many")
        _check_inputs(name, part, inputs, dataset.tokens)
        _check_labels(name, part, labels, dataset.classes)
    if dataset.users is not None:
        _check_users(name, dataset.users, len(dataset.train_inputs))


def _whole(field: str) -> str:
    return "numbers of tokens" if field.endswith("inputs") else "classes"


def _check_inputs(name: str, part: str, inputs: NDArray[Any], tokens: int | None) -> None:
    if inputs.dtype == np.float32:
        _check_finite(name, part, "inputs", inputs)
        if tokens is not None:
            raise OffbeatError(f"{name}: tokens is {tokens}, but {part}_inputs are float32: leave tokens out")
        return
    allowed = _count(tokens)
    if allowed < 1:
        raise OffbeatError(f"{name}: {part}_inputs are int64 but tokens is {tokens!r}: say how many tokens there are")
    if (bad := _first(inputs, lambda some: (some < 0) | (some >= allowed))) is not None:
        raise OffbeatError(
            f"{name}: tokens out of range: {part} example {bad} has one of {_outlier(inputs[bad])}, "
            f"allowed are 0 … {allowed - 1}"
        )


def _check_labels(name: str, part: str, labels: NDArray[Any], classes: int | None) -> None:
    if labels.dtype == np.float32:
        _check_finite(name, part, "labels", labels)
        if classes is not None:
            raise OffbeatError(f"{name}: classes is {classes}, but {part}_labels are float32: make it None")
        return
    if labels.ndim != 1:
        raise OffbeatError(
            f"{name}: {part}_labels are classes of shape {labels.shape[1:]} an example: give one number each"
        )
    allowed = _count(classes)
    if allowed < 1:
        raise OffbeatError(
            f"{name}: {part}_labels are int64 but classes is {classes!r}: say how many classes there are"
        )
    if (bad := _first(labels, lambda some: (some < 0) | (some >= allowed))) is not None:
        raise OffbeatError(
            f"{name}: labels out of range: {part} example {bad} has {labels[bad]}, allowed are 0 … {allowed - 1}"
        )


def _check_finite(name: str, part: str, what: str, values: NDArray[Any]) -> None:
    if (bad := _first(values, lambda some: ~np.isfinite(some))) is not None:
        raise OffbeatError(f"{name}: NaN or infinity in the {what} of {part} example {bad}: remove or mend it")


def _check_alike(name: str, what: str, train: NDArray[Any], test: NDArray[Any]) -> None:
    if train.dtype != test.dtype:
        raise OffbeatError(f"{name}: train {what} are {train.dtype}, test {what} {test.dtype}: make both the same")
    if train.shape[1:] != test.shape[1:]:
        raise OffbeatError(
            f"{name}: train {what} have the shape {train.shape[1:]} an example, test {what} {test.shape[1:]}: "
            "make both the same"
        )


def _check_users(name: str, users: Any, examples: int) -> None:
    if not isinstance(users, np.ndarray) or users.dtype != np.int64 or users.shape != (examples,):
        given = f"{users.dtype} {users.shape}" if isinstance(users, np.ndarray) else f"a {type(users).__name__}"
        raise OffbeatError(f"{name}: users is {given}: make it int64 ({examples},), a number for each train example")
    if (bad := _first(users, lambda some: some < 0)) is not None:
        raise OffbeatError(f"{name}: users out of range: train example {bad} is of user {users[bad]}: count from 0")
    numbers = np.unique(users)
    if numbers[-1] != len(numbers) - 1:
        gap = int(np.flatnonzero(numbers != np.arange(len(numbers)))[0])
        raise OffbeatError(
            f"{name}: users go up to {numbers[-1]}, but none of the examples is of user {gap}: leave none out"
        )


def _count(value: Any) -> int:
    """Return a user's count, 0 where it is none."""
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else 0


def _first(values: NDArray[Any], wrong: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> int | None:
    """Return the first example that has something wrong."""
    examples = max(1, _BLOCK // max(1, values[0].size))
    for begin in range(0, len(values), examples):
        some = wrong(values[begin : begin + examples])
        rows = some.any(axis=tuple(range(1, some.ndim)))
        if rows.any():
            return begin + int(rows.argmax())
    return None


def _outlier(tokens: NDArray[np.int64]) -> int:
    """Return what is farthest from the allowed numbers."""
    return int(tokens.min()) if tokens.min() < 0 else int(tokens.max())
