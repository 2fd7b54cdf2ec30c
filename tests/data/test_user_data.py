import dataclasses
import math
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError
from torch.utils.data import ConcatDataset, IterableDataset, Subset, TensorDataset
from torch.utils.data import Dataset as TorchDataset

from offbeat.data.dataset import Dataset
from offbeat.data.user_data import from_user
from tests.error_line import error_line


class Listed(TorchDataset):
    """A map-style data set over a list of items."""

    def __init__(self, items, users=None):
        self.items = items
        if users is not None:
            self.users = users

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        item = self.items[index]
        if isinstance(item, Exception):
            raise item
        return item


def floats(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 7


TRAIN = [(value, label) for value, label in zip(floats(4, 2), [0, 2, 1, 0], strict=True)]
TEST = [(value, label) for value, label in zip(floats(2, 2), [0, 3], strict=True)]


def test_arrays_and_numbers():
    dataset = from_user((Listed(TRAIN), Listed(TEST)), "mine")
    assert (dataset.name, dataset.classes, dataset.tokens, dataset.users) == ("mine", 4, None, None)
    np.testing.assert_array_equal(dataset.train_inputs, floats(4, 2))
    np.testing.assert_array_equal(dataset.test_inputs, floats(2, 2))
    assert dataset.train_inputs.dtype == np.float32
    assert dataset.train_labels.tolist() == [0, 2, 1, 0]
    assert dataset.test_labels.tolist() == [0, 3]
    assert dataset.train_labels.dtype == dataset.test_labels.dtype == np.int64


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_of_any_width(kind):
    inputs = torch.tensor([[0.5, 1], [2, -4]], dtype=kind).requires_grad_()
    items = Listed([(row, torch.tensor(1)) for row in inputs])
    dataset = from_user((items, items), "mine")
    np.testing.assert_array_equal(dataset.train_inputs, np.float32([[0.5, 1], [2, -4]]))
    assert dataset.classes == 2


def test_whole_numbers_as_inputs_are_tokens():
    train = Listed([(np.array([1, 0], np.int32), np.uint8(0)), (np.array([5, 2], np.int32), np.uint8(1))])
    test = Listed([(np.array([7, 0], np.int32), np.uint8(0))])
    dataset = from_user([train, test], "mine")
    assert (dataset.tokens, dataset.classes) == (8, 2)
    assert dataset.train_inputs.dtype == dataset.test_labels.dtype == np.int64
    assert dataset.train_inputs.tolist() == [[1, 0], [5, 2]]


def test_floats_as_labels_are_targets():
    items = Listed([(0.5, [1.0, 2.0]), (1.5, [3.0, 4.0])])
    dataset = from_user((items, items), "mine")
    assert dataset.classes is None
    assert dataset.train_inputs.tolist() == [0.5, 1.5]
    assert dataset.train_labels.dtype == np.float32
    assert dataset.train_labels.tolist() == [[1, 2], [3, 4]]


def test_tensor_data_sets_come_out_the_same_either_way(monkeypatch):
    inputs, labels = torch.rand(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0], dtype=torch.int32)
    whole = TensorDataset(inputs, labels)
    slow = from_user((Subset(whole, range(5)), Subset(whole, [4])), "mine")
    monkeypatch.setattr(TensorDataset, "__getitem__", lambda self, index: pytest.fail("one by one"))
    fast = from_user((whole, TensorDataset(inputs[4:], labels[4:])), "mine")
    for field in dataclasses.fields(Dataset):
        one, other = getattr(slow, field.name), getattr(fast, field.name)
        np.testing.assert_array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


@settings(max_examples=20)
@given(
    users=st.lists(st.integers(-5, 5), min_size=1, max_size=20) | st.lists(st.text(max_size=2), min_size=1, max_size=20)
)
def test_users_are_numbered_in_sorted_order(users):
    items = [(0.0, 0)] * len(users)
    numbers = from_user((Listed(items, users), Listed(items)), "mine").users
    assert numbers is not None
    assert numbers.dtype == np.int64
    names = sorted(set(users))
    assert [names[number] for number in numbers] == users


@pytest.mark.parametrize("kind", [np.array, torch.tensor, tuple, pa.array, lambda users: list(torch.tensor(users))])
def test_users_in_other_containers(kind):
    dataset = from_user((Listed(TRAIN, kind([30, 10, 30, 20])), Listed(TEST)), "mine")
    assert dataset.users is not None
    assert dataset.users.tolist() == [2, 0, 2, 1]


def test_users_are_taken_through_subsets_and_concatenations():
    listed = Listed([(float(i), 0) for i in range(6)], ["d", "a", "c", "b", "a", "d"])
    nested = Subset(Subset(listed, [5, 4, 3, 2]), torch.tensor([0, 3, 1]))  # users d, c, a
    dataset = from_user((ConcatDataset([nested, listed]), listed), "mine")
    assert dataset.train_inputs.tolist() == [5, 2, 4, 0, 1, 2, 3, 4, 5]
    assert dataset.users.tolist() == [3, 2, 0, 3, 0, 2, 1, 0, 3]
    nested.users = [7, 8, 7]  # its own come first
    assert from_user((nested, listed), "mine").users.tolist() == [0, 1, 0]
    assert from_user((Subset(Listed(TRAIN), [1, 2]), Listed(TEST)), "mine").users is None


@pytest.mark.parametrize(
    ("train", "reason"),
    [
        (Subset(Listed(TRAIN, [1, 2]), [0]), r"2 users but 4 examples in the data set of which train is a subset"),
        (ConcatDataset([Listed(TRAIN, [1, 2, 1, 2]), Listed(TRAIN)]), "users are missing in part 1 of train"),
        (Listed(TRAIN, [1, None, 2, 3]), "example 1 has None"),
        (Listed(TRAIN, pa.array(["a", None, "b", "c"])), "example 1 has None"),
        (Listed(TRAIN, [1, math.nan, 2, 3]), "example 1 has nan"),
        (Listed(TRAIN, [1, 0, True, 3]), "example 2 has True"),
        (Listed(TRAIN, ["a", "b", 3, "c"]), "example 2 has 3"),
    ],
)
def test_users_that_are_incomplete_are_named(train, reason):
    assert reason in error_line(from_user, (train, Listed(TEST)), "mine")


def test_an_offbeat_data_set_is_checked_and_gets_the_name():
    inputs, labels = floats(4, 2), np.array([0, 1, 1, 0])
    made = Dataset("other", inputs, labels, inputs, labels, classes=2)
    dataset = from_user(made, "mine")
    assert dataset.name == "mine"
    assert dataset.train_inputs is inputs
    with pytest.raises(OffbeatError, match="mine: labels out of range: train example 1 has 1, allowed are 0 … 0"):
        from_user(dataclasses.replace(made, classes=1), "mine")


def replaced(index, item):
    return Listed([*TRAIN[:index], item, *TRAIN[index + 1 :]])


class Endless(Listed):
    def __len__(self):
        return 10**15


class Stream(IterableDataset):
    def __iter__(self):
        return iter(TRAIN)


FLAT = torch.zeros(3)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (Listed(TRAIN), "got a value of type Listed: return a pair"),
        ((Listed(TRAIN),) * 3, "got a tuple of 3: return a pair"),
        ((Stream(), Listed(TEST)), "train: a value of type Stream has no length"),
        ((Listed([]), Listed(TEST)), "train: there are no examples"),
        ((Listed(TRAIN), TensorDataset(FLAT[:0], FLAT[:0])), "test: there are no examples"),
        ((replaced(2, (1, 2, 3)), Listed(TEST)), "train example 2 is a tuple of 3: give the pair"),
        ((Listed(TRAIN), Listed([floats(2)])), "test example 0 is a value of type ndarray: give the pair"),
        ((TensorDataset(FLAT), Listed(TEST)), "train example 0 is a tuple of 1: give the pair"),
        (
            (replaced(2, (floats(3), 0)), Listed(TEST)),
            r"train example 2: the input has shape \(3,\), .* 0 \(2,\): .* data.collate",
        ),
        ((replaced(2, (floats(2), [0])), Listed(TEST)), r"train example 2: the label has shape \(1,\), .* 0 \(\)"),
        ((replaced(1, (np.array([1, 2]), 0)), Listed(TEST)), "train example 1: the input is int64, not float32"),
        ((replaced(3, (floats(2), 0.5)), Listed(TEST)), "train example 3: the label is float64, not int64"),
        ((replaced(0, (floats(2), "cat")), Listed(TEST)), "train example 0: labels are <U3"),
        ((replaced(0, ("cat", 1)), Listed(TEST)), "train example 0: inputs are <U3"),
        ((replaced(1, (floats(2).astype(np.uint8), 1)), Listed(TEST)), "train example 1: inputs are uint8: make"),
        ((replaced(1, ([[1.0], [1.0, 2.0]], 1)), Listed(TEST)), "train example 1, input: a list of 2 is not an array"),
        ((replaced(1, KeyError("a\nb")), Listed(TEST)), r"train example 1 cannot be read: KeyError: "),
        ((replaced(1, (np.array([0, 1e300]), 1)), Listed(TEST)), "infinity in the inputs of train example 1"),
        (
            (TensorDataset(FLAT.double() + 1e300, FLAT), TensorDataset(FLAT, FLAT)),
            "infinity in the inputs of train example 0",
        ),
        ((Listed([([0, -2], 1)]), Listed([([0, 1], 1)])), "inputs out of range: train example 0 has -2"),
        (
            (Endless(TRAIN), Listed(TEST)),
            r"train: 1,000,000,000,000,000 examples of shape \(2,\) do not fit into memory",
        ),
        (((torch.tensor(1.0), torch.tensor(1)),) * 2, "train_inputs are empty"),
        ((Listed(TRAIN, [1, 2]), Listed(TEST)), "2 users but 4 train examples"),
        ((Listed(TRAIN, 4), Listed(TEST)), "users is a value of type int"),
        ((Listed(TRAIN, [1, 2, "a", 3]), Listed(TEST)), "users are neither all integers nor all strings"),
    ],
)
def test_mistakes_are_named_in_one_line(made, reason):
    with pytest.raises(OffbeatError, match=rf"^mine.*{reason}"):
        from_user(made, "mine")


def test_arrays_that_torch_refuses_are_copied():
    given = {
        "train_inputs": floats(4, 2)[::-1],
        "train_labels": np.array([0, 1, 1, 0])[::-1],
        "test_inputs": floats(2, 2)[::-1],
        "test_labels": np.array([1, 0])[::-1],
        "users": np.array([0, 1, 1, 0])[::-1],
    }
    dataset = from_user(Dataset(name="", classes=2, tokens=None, **given), "mine")
    for key, values in given.items():
        np.testing.assert_array_equal(torch.from_numpy(getattr(dataset, key)).numpy(), values)


@pytest.mark.parametrize(
    ("mode", "kind", "tokens", "shape"),
    [("r", np.float32, None, (2000, 500)), ("c", np.int64, 1, (2000, 500)), ("r", np.int64, 1, (1_000_000, 1))],
)
def test_data_on_disk_are_neither_copied_nor_checked_all_at_once(mode, kind, tokens, shape, tmp_path):
    np.save(tmp_path / "inputs.npy", np.zeros(shape, kind))
    inputs, labels = np.load(tmp_path / "inputs.npy", mmap_mode=mode), np.zeros(shape[0], np.int64)
    given = Dataset("", inputs, labels, inputs[:1], labels[:1], classes=1, tokens=tokens)
    tracemalloc.start()
    try:
        dataset = from_user(given, "mine")
        assert dataset.fingerprint == given.fingerprint
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.shares_memory(dataset.train_inputs, inputs)
    assert peak < 600_000  # a truth value for each number would be a million already
