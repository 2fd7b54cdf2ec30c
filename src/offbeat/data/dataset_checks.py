"""Checks of a data set that name its first wrong example."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from offbeat_core.errors import OffbeatError

from offbeat.data.dataset import Dataset
from offbeat.model_inputs import TOKENS, name_inputs

_NAMES = ("NAType", "NaTType", "NoneType")  # of pandas, which need not be installed, and Python


def refuse_missing(values: NDArray[Any], where: str, *, is_batch: bool) -> None:
    """Raise ``OffbeatError`` for a masked value, or for None, NaN or NA among objects.

    ``where`` is the array's place; in a batch the example is named, too.
    """
    if isinstance(values, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(values)
    elif values.dtype == object:
        missing = np.vectorize(_is_missing, otypes=[bool])(values)
    else:
        return
    if missing.any():
        first = np.unravel_index(int(missing.argmax()), missing.shape)
        what = "a masked value" if isinstance(values, np.ma.MaskedArray) else f"the missing value {values[first]!r}"
        example = f", example {first[0]}" if is_batch and first else ""
        raise OffbeatError(f"{where}{example}: has {what}: remove the example, or replace the value")


def _is_missing(value: Any) -> bool:
    return type(value).__name__ in _NAMES or (isinstance(value, float) and value != value)


_BLOCK = 2**16  # values checked together: a check of all of them may not fit into memory


def check(dataset: Dataset) -> None:
    """Raise ``OffbeatError`` unless a data set is as ``Dataset`` describes."""
    name = dataset.name
    for field in ("train_inputs", "train_labels", "test_inputs", "test_labels"):
        given: Any = getattr(dataset, field)
        if isinstance(given, dict) and not given:
            raise OffbeatError(f"{name}: {field} are empty: give at least one array")
        for key, array in name_inputs(field, given).items() if field.endswith("inputs") else [(field, given)]:
            _check_array(name, key, array)
    train_inputs, test_inputs = (name_inputs("inputs", part) for part in (dataset.train_inputs, dataset.test_inputs))
    if train_inputs.keys() != test_inputs.keys():
        raise OffbeatError(
            f"{name}: train has {', '.join(train_inputs)}, test has {', '.join(test_inputs)}: make both the same"
        )
    for key, train in train_inputs.items():
        _check_same_type(name, key, train, test_inputs[key])
    _check_same_type(name, "labels", dataset.train_labels, dataset.test_labels)
    for part, inputs in (("train", train_inputs), ("test", test_inputs)):
        labels = getattr(dataset, f"{part}_labels")
        for key, array in inputs.items():
            if len(array) != len(labels):
                raise OffbeatError(f"{name}: {len(array)} {part}_{key} but {len(labels)} {part}_labels: give as many")
            if key in ("inputs", f"inputs.{TOKENS}"):
                _check_values(name, part, key, array, "tokens", dataset.tokens)
            else:
                _check_finite(name, part, key, array)
        _check_labels(name, part, labels, dataset.classes)
    if dataset.users is not None:
        _check_users(name, dataset.users, len(dataset.train_labels))


def _check_array(name: str, key: str, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        raise OffbeatError(f"{name}: {key} is a {type(array).__name__}: make it a numpy array")
    refuse_missing(array, f"{name}: {key}", is_batch=True)
    may_be_bool = not key.endswith("inputs")  # labels, and inputs by name
    if array.dtype not in ((np.float32, np.int64, np.bool_) if may_be_bool else (np.float32, np.int64)):
        integers = "or bool" if may_be_bool else "for token numbers"
        raise OffbeatError(f"{name}: {key} are {array.dtype}: make them float32, or int64 {integers}")
    if array.ndim == 0 or len(array) == 0:
        raise OffbeatError(f"{name}: {key} are empty: give at least one example")


def _check_labels(name: str, part: str, labels: NDArray[Any], classes: int | None) -> None:
    """Refuse labels that are not finite; or, where classes are counted, not classes."""
    if classes is None:
        return _check_finite(name, part, "labels", labels)
    if labels.ndim != 1 or labels.dtype == np.bool_:
        raise OffbeatError(
            f"{name}: classes is {classes}, but {part}_labels are {labels.dtype} of shape {labels.shape[1:]} per "
            "example: make it None"
        )
    return _check_values(name, part, "labels", labels, "classes", classes)


def _check_values(name: str, part: str, what: str, values: NDArray[Any], kind: str, count: int | None) -> None:
    """Refuse floats that are not finite, and integers outside ``0 … count − 1``."""
    if values.dtype == np.float32:
        _check_finite(name, part, what, values)
        if count is not None:
            raise OffbeatError(f"{name}: {kind} is {count}, but {part}_{what} are float32: make it None")
        return
    allowed = _count(count)
    if allowed < 1:
        raise OffbeatError(f"{name}: {part}_{what} are int64 but {kind} is {count!r}: say how many {kind} there are")
    if (bad := _find_first(values, lambda block: (block < 0) | (block >= allowed))) is not None:
        numbers = np.atleast_1d(values[bad])
        wrong = numbers[(numbers < 0) | (numbers >= allowed)][0]
        raise OffbeatError(
            f"{name}: {what} out of range: {part} example {bad} has {wrong}, allowed are 0 … {allowed - 1}"
        )


def _check_finite(name: str, part: str, what: str, values: NDArray[Any]) -> None:
    if values.dtype != np.float32:
        return
    if (bad := _find_first(values, lambda block: ~np.isfinite(block))) is not None:
        raise OffbeatError(f"{name}: NaN or infinity in the {what} of {part} example {bad}: remove or correct it")


def _check_same_type(name: str, what: str, train: NDArray[Any], test: NDArray[Any]) -> None:
    if train.dtype != test.dtype:
        for part, values in (("train", train), ("test", test)):
            _check_finite(name, part, what, values)  # whole numbers become floats where one is missing
        raise OffbeatError(f"{name}: train {what} are {train.dtype}, test {what} {test.dtype}: make both the same")
    if train.shape[1:] != test.shape[1:]:
        raise OffbeatError(
            f"{name}: train {what} have shape {train.shape[1:]} per example, test {what} {test.shape[1:]}: "
            "make both the same"
        )


def _check_users(name: str, users: Any, examples: int) -> None:
    if not isinstance(users, np.ndarray) or users.dtype != np.int64 or users.shape != (examples,):
        given = f"{users.dtype} {users.shape}" if isinstance(users, np.ndarray) else f"a {type(users).__name__}"
        raise OffbeatError(f"{name}: users is {given}: make it int64 ({examples},), a number for each train example")
    if (bad := _find_first(users, lambda block: block < 0)) is not None:
        raise OffbeatError(f"{name}: users out of range: train example {bad} is of user {users[bad]}: count from 0")
    numbers = np.unique(users)
    if numbers[-1] != len(numbers) - 1:
        gap = int(np.flatnonzero(numbers != np.arange(len(numbers)))[0])
        raise OffbeatError(
            f"{name}: users go up to {numbers[-1]}, but user {gap} has no example: number users without gaps"
        )


def _count(value: Any) -> int:
    """Return a count that a user gave; 0 if it is not an integer."""
    return int(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else 0


def _find_first(values: NDArray[Any], is_wrong: Callable[[NDArray[Any]], NDArray[np.bool_]]) -> int | None:
    """Return the first example with a wrong value; None if there is none."""
    examples = max(1, _BLOCK // max(1, values[0].size))
    for begin in range(0, len(values), examples):
        wrong = is_wrong(values[begin : begin + examples])
        rows = wrong.any(axis=tuple(range(1, wrong.ndim)))
        if rows.any():
            return begin + int(rows.argmax())
    return None
