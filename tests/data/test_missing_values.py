"""Missing values in users' data: one line with the column and the row, whatever the container."""

import math

import datasets
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import nn
from torch.utils.data import Subset

from offbeat.data.dataset import Dataset
from offbeat.data.user_data import from_user
from offbeat.service.client.local_sgd import LocalSGD
from tests.error_line import error_line

X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([0, 1, 0, 1])
MASK = np.eye(4, 3, -2, bool)  # of example 2, and 3
LATER = [0, 1, None, 1]
FIRST = [None, 1, 0, 1]


def table(**columns):
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
    (table(labels=FIRST), ["the labels of", "example 0"]),
    (table(a=[None, *X[1:].tolist()]), ["example 0, input.a: has the missing value None"]),
    (table(a=[*X[:3].tolist(), None]), ["example 3, input.a: has the missing value None"]),
    (table(a=[*X[:3].tolist(), [1.0, None, 2.0]]), ["the inputs.a of", "example 3"]),
    (table(m=[True, False, None, True]), ["example 2, input.m: has the missing value None"]),
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
    message = error_line(from_user, (data, data), "mine")
    assert all(part in message for part in ["mine: ", "train", *parts])


@pytest.mark.parametrize(("data", "parts"), CASES)
def test_a_client_names_them(data, parts):
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
