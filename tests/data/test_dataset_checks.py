import dataclasses
import math
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch import nn
from torch.utils.data import Subset

from offbeat.client.local_sgd import LocalSGD
from offbeat.data.dataset import Dataset
from offbeat.data.dataset_checks import check
from offbeat.data.user_data import from_user
from tests.error_line import error_line

INPUTS = np.arange(12, dtype=np.float32).reshape(4, 3)
LABELS = np.array([0, 1, 2, 0])
GOOD = Dataset("mine", INPUTS, LABELS, INPUTS[:2], LABELS[:2], classes=3, users=np.array([1, 0, 1, 0]))
TOKENS = dataclasses.replace(GOOD, train_inputs=INPUTS.astype(np.int64), test_inputs=INPUTS[:2].astype(int), tokens=12)
TARGETS = dataclasses.replace(GOOD, train_labels=INPUTS, test_labels=INPUTS[:2], classes=None)


def with_one(array, place, value):
    changed = array.copy()
    changed[place] = value
    return changed


MASKS = dataclasses.replace(TARGETS, train_labels=(INPUTS - 100).astype(int), test_labels=-np.ones((2, 3), np.int64))
SIGNS = dataclasses.replace(GOOD, train_labels=LABELS - 1, test_labels=LABELS[:2] - 1, classes=None)
FLAGS = dataclasses.replace(TARGETS, train_labels=INPUTS > 3, test_labels=INPUTS[:2] > 3)


@pytest.mark.parametrize("dataset", [GOOD, TOKENS, TARGETS, MASKS, SIGNS, FLAGS, dataclasses.replace(GOOD, users=None)])
def test_good_data_sets(dataset):
    check(dataset)


@pytest.mark.parametrize(
    ("dataset", "changes", "reason"),
    [
        (GOOD, {"train_inputs": INPUTS.tolist()}, "train_inputs is a list: make it a numpy array"),
        (GOOD, {"test_inputs": INPUTS.astype(float)}, "test_inputs are float64: make them float32, or int64 for token"),
        (GOOD, {"test_labels": LABELS.astype(np.uint8)}, "test_labels are uint8: make them float32, or int64 or bool"),
        (GOOD, {"test_inputs": INPUTS[:0], "test_labels": LABELS[:0]}, "test_inputs are empty"),
        (GOOD, {"train_inputs": np.zeros((), np.float32)}, "train_inputs are empty"),
        (GOOD, {"train_labels": LABELS[:3]}, "4 train_inputs but 3 train_labels"),
        (GOOD, {"test_labels": LABELS}, "2 test_inputs but 4 test_labels"),
        (GOOD, {"train_inputs": with_one(INPUTS, (2, 1), np.nan)}, "NaN or infinity in the inputs of train example 2"),
        (GOOD, {"test_inputs": with_one(INPUTS[:2], (1, 1), -np.inf)}, "infinity in the inputs of test example 1"),
        (GOOD, {"train_labels": with_one(LABELS, 1, 3)}, r"labels out of range: train example 1 has 3, .* 0 … 2"),
        (GOOD, {"test_labels": np.array([0, 5])}, "labels out of range: test example 1 has 5"),
        (GOOD, {"classes": "3"}, "classes is '3'"),
        (
            GOOD,
            {"train_labels": LABELS[:, None], "test_labels": LABELS[:2, None]},
            r"classes is 3, but train_labels are int64 of shape \(1,\)",
        ),
        (GOOD, {"train_labels": LABELS > 0, "test_labels": LABELS[:2] > 0}, "classes is 3, but train_labels are bool"),
        (GOOD, {"test_labels": np.zeros(2, np.float32)}, "train labels are int64, test labels float32"),
        (GOOD, {"test_inputs": INPUTS[:2, :2]}, r"shape \(3,\) per example, test inputs \(2,\)"),
        (GOOD, {"test_inputs": INPUTS[:2].astype(int)}, "train inputs are float32, test inputs int64"),
        (GOOD, {"tokens": 5}, "tokens is 5, but train_inputs are float32"),
        (TOKENS, {"tokens": None}, "tokens is None"),
        (TOKENS, {"tokens": True}, "tokens is True"),
        (TOKENS, {"tokens": 11}, "inputs out of range: train example 3 has 11, allowed are 0 … 10"),
        (TOKENS, {"test_inputs": np.array([[1, 2, 3], [1, -4, 99]])}, "test example 1 has -4"),
        (TARGETS, {"classes": 3}, "classes is 3, but train_labels are float32"),
        (TARGETS, {"test_labels": INPUTS[:2, :2]}, r"shape \(3,\) per example, test labels \(2,\)"),
        (TARGETS, {"train_labels": with_one(INPUTS, (3, 0), np.inf)}, "infinity in the labels of train example 3"),
        (GOOD, {"users": [0, 0, 1, 1]}, r"users is a list: make it int64 \(4,\)"),
        (GOOD, {"users": np.array([0, 1])}, r"users is int64 \(2,\): make it int64 \(4,\)"),
        (GOOD, {"users": np.zeros(4)}, r"users is float64 \(4,\)"),
        (GOOD, {"users": np.array([0, -1, 1, 1])}, "train example 1 is of user -1"),
        (GOOD, {"users": np.array([0, 3, 1, 1])}, "users go up to 3, but user 2 has no example"),
    ],
)
def test_bad_data_sets(dataset, changes, reason):
    with pytest.raises(OffbeatError, match=rf"^mine: .*{reason}"):
        check(dataclasses.replace(dataset, **changes))


@pytest.mark.parametrize("bad", [0, 65_536, 99_999])
def test_the_first_bad_example_of_many_is_found(bad):
    inputs, labels = np.zeros((100_000, 1), np.float32), np.zeros(100_000, np.int64)
    many = dataclasses.replace(GOOD, train_inputs=inputs, train_labels=labels, test_inputs=inputs[:2] + 1, users=None)
    check(many)
    inputs[[bad, -1]] = np.nan
    with pytest.raises(OffbeatError, match=f"in the inputs of train example {bad}:"):
        check(many)


NAMED = dataclasses.replace(
    GOOD,
    train_inputs={"input_ids": TOKENS.train_inputs, "mask": INPUTS > 3, "kind": -np.ones(4, np.int64), "age": INPUTS},
    test_inputs={
        "age": INPUTS[:2],
        "kind": np.ones(2, np.int64),
        "mask": INPUTS[:2] > 3,
        "input_ids": np.ones((2, 3), np.int64),
    },
    tokens=12,
)


def train(**changes):
    return {"train_inputs": NAMED.train_inputs | changes}


def test_inputs_by_name():
    check(NAMED)
    without = {name: part for name, part in NAMED.train_inputs.items() if name != "input_ids"}
    others = {name: part for name, part in NAMED.test_inputs.items() if name != "input_ids"}
    check(dataclasses.replace(NAMED, train_inputs=without, test_inputs=others, tokens=None))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"train_inputs": {}}, "train_inputs are empty: give at least one array"),
        ({"test_inputs": INPUTS[:2]}, "train has inputs.input_ids, .*, test has inputs: make both the same"),
        (train(more=INPUTS), "train has .*inputs.more, test has .*: make both the same"),
        (train(mask=[1, 0]), "train_inputs.mask is a list: make it a numpy array"),
        (train(age=INPUTS.astype(float)), "train_inputs.age are float64: make them float32, or int64 or bool"),
        (train(age=INPUTS[:3]), "3 train_inputs.age but 4 train_labels: give as many"),
        (train(age=with_one(INPUTS, (2, 1), np.nan)), "NaN or infinity in the inputs.age of train example 2"),
        (train(age=INPUTS[:, :2]), r"train inputs.age have shape \(2,\) per example, test inputs.age \(3,\)"),
        (train(kind=INPUTS[:, 0]), "train inputs.kind are float32, test inputs.kind int64"),
        ({"tokens": 11}, "inputs.input_ids out of range: train example 3 has 11, allowed are 0 … 10"),
        ({"tokens": None}, "train_inputs.input_ids are int64 but tokens is None"),
    ],
)
def test_mistakes_in_inputs_by_name_are_named(changes, reason):
    with pytest.raises(OffbeatError, match=f"^mine: {reason}"):
        check(dataclasses.replace(NAMED, **changes))


X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([0, 1, 0, 1])
MASK = np.eye(4, 3, -2, bool)  # of example 2, and 3
LATER = [0, 1, None, 1]
FIRST = [None, 1, 0, 1]


def table(**columns):
    import datasets  # here, since every process collects tests, and one runs these

    return datasets.Dataset.from_dict({"a": X.tolist(), "labels": Y.tolist(), **columns})


def pairs(example, pair):
    """Return examples one by one, of which one is replaced."""
    found = list(zip(X, Y, strict=True))
    return Subset([*found[:example], pair, *found[example + 1 :]], range(4))


CASES = [
    ((np.ma.array(X, mask=MASK), Y), ["input", "example 2: has a masked value"]),
    ((X, np.ma.array(Y, mask=MASK[:, 1])), ["labels", "example 3: has a masked value"]),
    (({"a": np.ma.array(X, mask=MASK), "b": X}, Y), ["a, example 2: has a masked value"]),
    ((X, np.array(LATER, object)), ["labels, example 2: has the missing value None"]),
    ((X, np.array(["a", math.nan, "b", "c"], object)), ["labels, example 1: has the missing value nan"]),
    ((X, pd.Series(LATER, dtype="Int64")), ["the labels of", "example 2"]),
    ((pd.DataFrame(X).astype("Float64").mask(MASK), pd.Series(Y)), ["input", "example 2"]),
    ((X, pd.Categorical(["a", None, "b", "c"])), ["labels, example 1: has the missing value nan"]),
    ((X, pa.array(FIRST)), ["the labels of", "example 0"]),
    ((torch.tensor(X), torch.tensor([0.0, 1.0, math.nan, 1.0])), ["the labels of", "example 2"]),
    ((np.where(MASK, np.inf, X), Y), ["the inputs of", "example 2"]),
    (partial(table, labels=FIRST), ["the labels of", "example 0"]),
    (partial(table, a=[None, *X[1:].tolist()]), ["example 0, input.a: has the missing value None"]),
    (partial(table, a=[*X[:3].tolist(), None]), ["example 3, input.a: has the missing value None"]),
    (partial(table, a=[*X[:3].tolist(), [1.0, None, 2.0]]), ["the inputs.a of", "example 3"]),
    (partial(table, m=[True, False, None, True]), ["example 2, input.m: has the missing value None"]),
    (pairs(0, (X[0], None)), ["example 0, label: has the missing value None"]),
    (pairs(2, (None, 1)), ["example 2, input: has the missing value None"]),
    (pairs(2, (X[2], pd.NA)), ["example 2, label: has the missing value <NA>"]),
    (pairs(2, (X[2], pd.NaT)), ["example 2, label: has the missing value NaT"]),
    (pairs(2, (np.ma.array(X, mask=MASK)[2], 1)), ["example 2, input: has a masked value"]),
    (pairs(2, (X[2], np.ma.masked)), ["example 2, label: has a masked value"]),
    (pairs(2, (X[2], math.nan)), ["example 2, label: has NaN"]),
    (pairs(0, (X[0], math.nan)), ["example 0, label: has NaN"]),
]


@pytest.mark.parametrize(("data", "parts"), CASES)
def test_a_simulation_names_them(data, parts):
    data = data() if callable(data) else data
    message = error_line(from_user, (data, data), "mine")
    assert all(part in message for part in ["mine: ", "train", *parts])


@pytest.mark.parametrize(("data", "parts"), CASES)
def test_a_client_names_them(data, parts):
    data = data() if callable(data) else data
    message = error_line(LocalSGD, nn.Linear(3, 2), "cross_entropy", data)
    assert all(part in message for part in ["data", *parts])


def test_whole_numbers_that_one_makes_floats_are_not_another_type():
    message = error_line(from_user, ((X, Y), (X, pd.Series(LATER))), "mine")
    assert message == "mine: NaN or infinity in the labels of test example 2: remove or correct it"


def test_those_of_a_data_set_of_arrays_are_named():
    masked = np.ma.array(X, mask=MASK)
    message = error_line(from_user, Dataset("other", masked, Y, X, Y, 2), "mine")
    assert message == "mine: train_inputs, example 2: has a masked value: remove the example, or replace the value"


def test_without_missing_values_the_containers_are_taken():
    for inputs, labels in [
        (np.ma.array(X), np.ma.array(Y)),
        (pd.DataFrame(X), pd.Series(Y, dtype="Int64")),
        (pd.DataFrame(X, index=[7, 5, 3, 1]), pd.Series(Y, index=[7, 5, 3, 1])),
        (X, pa.array(Y)),
    ]:
        dataset = from_user(((inputs, labels), (X, Y)), "mine")
        assert dataset.train_inputs.tolist() == X.tolist()
        assert dataset.train_labels.tolist() == Y.tolist()
        client = LocalSGD(nn.Linear(3, 2), "cross_entropy", (inputs, labels))
        assert client.examples == 4


def test_objects_without_missing_values_are_refused_as_objects():
    labels = np.array(["a", "b", "c", "d"], object)
    assert "labels are object: make classes int64" in error_line(from_user, ((X, labels), (X, Y)), "mine")
    message = error_line(LocalSGD, nn.Linear(3, 2), "cross_entropy", (X, labels))
    assert message == "data, labels: is an array of object: make it numbers"
