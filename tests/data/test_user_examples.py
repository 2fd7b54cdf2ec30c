"""Users' data whose examples have names, of arrays, of Hugging Face, and of a collate function."""

import numpy as np
import pytest
import torch
from offbeat_core.errors import OffbeatError
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, TensorDataset

from offbeat.data.dataset import Dataset
from offbeat.data.user_data import from_user

WORDS = [[1, 2], [3, 0], [5, 4]]
EXAMPLES = [
    {"input_ids": torch.tensor(words), "attention_mask": [word > 0 for word in words], "labels": label}
    for words, label in zip(WORDS, [0, 2, 1], strict=True)
]
RAGGED = [{"input_ids": [1, 2, 3], "label": 0}, {"input_ids": [4], "label": 1}]


class Table:
    """A stand-in for Hugging Face's ``Dataset``: columns, of which rows and formats are made."""

    def __init__(self, columns, kind="python"):
        self.columns = columns
        self.column_names = list(columns)
        self.kind = kind
        self.format = {"type": None, "format_kwargs": {}, "columns": self.column_names, "output_all_columns": False}

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index):
        assert self.kind == ("numpy" if isinstance(index, slice) else "python")
        return {name: self._format(column[index]) for name, column in self.columns.items()}

    def _format(self, values):
        if self.kind == "python":
            return values
        ragged = isinstance(values[0], list) and len({len(value) for value in values}) > 1
        return np.array(values, object) if ragged else np.asarray(values)

    def with_format(self, kind, columns):
        return Table({name: self.columns[name] for name in columns}, kind)


def table(examples):
    return Table({name: [example[name] for example in examples] for name in examples[0]})


def pad(examples):
    words = pad_sequence([torch.tensor(example["input_ids"]) for example in examples], batch_first=True)
    return {"input_ids": words, "mask": words > 0, "labels": torch.tensor([example["label"] for example in examples])}


def assert_is_of_examples(dataset):
    assert list(dataset.train_inputs) == ["input_ids", "attention_mask"]
    assert dataset.train_inputs["input_ids"].tolist() == WORDS
    assert dataset.train_inputs["input_ids"].dtype == np.int64
    assert dataset.train_inputs["attention_mask"].tolist() == [[True, True], [True, False], [True, True]]
    assert dataset.train_labels.tolist() == [0, 2, 1]
    assert dataset.test_inputs["input_ids"].tolist() == WORDS[:2]
    assert (dataset.classes, dataset.tokens) == (3, 6)


@pytest.mark.parametrize("label", ["labels", "label"])
def test_examples_by_name(label):
    examples = [
        {name: value for name, value in example.items() if name != "labels"} | {label: example["labels"]}
        for example in EXAMPLES
    ]
    assert_is_of_examples(from_user((examples, examples[:2]), "mine"))


def test_pairs_whose_input_has_names():
    pairs = [({"x": 0.5, "y": np.float64(i)}, i) for i in (0, 1)]
    dataset = from_user((pairs, pairs), "mine")
    assert {name: part.tolist() for name, part in dataset.train_inputs.items()} == {"x": [0.5, 0.5], "y": [0, 1]}
    assert dataset.train_inputs["y"].dtype == np.float32
    assert dataset.tokens is None


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("pair", [tuple, list])
def test_arrays(kind, pair):
    inputs, labels = kind([[0.5, 1.0], [2.0, 3.0]]), kind([0, 1])
    dataset = from_user((pair((inputs, labels)), pair((inputs[:1], labels[:1]))), "mine")
    assert dataset.train_inputs.tolist() == [[0.5, 1], [2, 3]]
    assert dataset.train_inputs.dtype == np.float32
    assert dataset.test_labels.tolist() == [0]


def test_arrays_by_name():
    part = {"input_ids": torch.tensor(WORDS), "attention_mask": torch.tensor(WORDS) > 0}
    test = {name: value[:2] for name, value in part.items()}
    labels = np.array([0, 2, 1])
    assert_is_of_examples(from_user(((part, labels), (test, labels[:2])), "mine"))


def test_a_list_of_two_examples_is_not_a_pair_of_arrays():
    pairs = [(np.float32([1, 2]), 0), (np.float32([3, 4]), 1)]
    dataset = from_user((pairs, pairs), "mine")
    assert dataset.train_inputs.tolist() == [[1, 2], [3, 4]]


def test_columns_of_hugging_face():
    columns = table([example | {"input_ids": example["input_ids"].tolist()} for example in EXAMPLES])
    test = Table({name: column[:2] for name, column in columns.columns.items()})
    assert_is_of_examples(from_user((columns, test), "mine"))


def test_a_hugging_face_dataset_itself():
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_list([example | {"input_ids": example["input_ids"].tolist()} for example in EXAMPLES])
    for train in (made, made.with_format("torch")):
        assert_is_of_examples(from_user((train, made.select([0, 1])), "mine"))
    ragged = datasets.Dataset.from_list(RAGGED)
    for form in (None, "pandas", "arrow"):
        with pytest.raises(OffbeatError, match=r"example 1: the input.input_ids has shape \(1,\), .* data\.collate"):
            from_user((ragged.with_format(form), ragged), "mine")
    dataset = from_user((ragged, ragged), "mine", collate=pad)
    assert dataset.train_inputs["input_ids"].tolist() == [[1, 2, 3], [4, 0, 0]]


def test_a_format_of_hugging_face_is_honoured():
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"x": [[1.0], [2.0]], "labels": [0, 1], "text": ["a", "b"]})
    chosen = made.with_format("torch", columns=["x", "labels"])
    assert from_user((chosen, chosen), "mine").train_inputs["x"].tolist() == [[1], [2]]
    doubled = made.with_transform(lambda rows: {"x": [[2 * x] for (x,) in rows["x"]], "labels": rows["labels"]})
    assert from_user((doubled, doubled), "mine").train_inputs["x"].tolist() == [[2], [4]]
    targets = chosen.with_format("torch", columns=["x", "labels"], dtype=torch.float32)
    assert from_user((targets, targets), "mine").train_labels.dtype == np.float32


@pytest.mark.parametrize("kind", [list, table])
def test_ragged_examples_become_one_length_by_collate(kind):
    longer = [{"input_ids": [7, 7, 7, 7], "label": 1}]
    dataset = from_user((kind(RAGGED), kind(longer)), "mine", collate=pad)
    assert dataset.train_inputs["input_ids"].tolist() == [[1, 2, 3, 0], [4, 0, 0, 0]]
    assert dataset.train_inputs["mask"].tolist() == [[True] * 3 + [False], [True] + [False] * 3]
    assert dataset.test_inputs["input_ids"].tolist() == [[7, 7, 7, 7]]
    assert (dataset.train_labels.tolist(), dataset.test_labels.tolist(), dataset.tokens) == ([0, 1], [1], 8)


def test_collate_may_return_a_pair():
    items = [([1.0, 2.0], 0), ([3.0], 1)]

    def padded(examples):
        rows = [torch.tensor(row) for row, _ in examples]
        return pad_sequence(rows, batch_first=True), [label for _, label in examples]

    dataset = from_user((items, items[1:]), "mine", collate=padded)
    assert dataset.train_inputs.tolist() == [[1, 2], [3, 0]]
    assert dataset.test_inputs.tolist() == [[3, 0]]


def test_the_users_of_collated_examples():
    class Users(list):
        users = ("b", "a")

    assert from_user((Users(RAGGED), RAGGED), "mine", collate=pad).users.tolist() == [1, 0]


def fail(examples):
    raise KeyError("a\nb")


def changed(index, **changes):
    return [example | changes if place == index else example for place, example in enumerate(EXAMPLES)]


@pytest.mark.parametrize(
    ("train", "collate", "reason"),
    [
        (RAGGED, None, r"train example 1: the input.input_ids has shape \(1,\), .* 0 \(3,\): .* data\.collate$"),
        (table(RAGGED), None, r"train example 1: the input.input_ids has shape \(1,\), .* data\.collate$"),
        (changed(1, more=1), None, "train example 1 has input.input_ids, input.attention_mask, input.more, example 0 "),
        ([{"input_ids": 1}], None, "train example 0 has input_ids: give inputs, and labels as 'labels'"),
        ([{"labels": 1}], None, "train example 0 has labels: give inputs"),
        (changed(0, text="cat"), None, "train example 0: the input.text is <U3: make it .* or leave it out"),
        (changed(2, labels="cat"), None, "train example 2: labels are <U3"),
        (changed(2, attention_mask=[1, 0]), None, "train example 2: the input.attention_mask is int64, not bool"),
        (
            ({"input_ids": torch.ones(3, 2).int(), "attention_mask": torch.ones(3, 2) > 0}, torch.zeros(2).int()),
            None,
            "3 train_inputs.input_ids but 2 train_labels",
        ),
        (RAGGED, fail, r"data\.collate failed: KeyError: .*test_user_examples.py:\d+"),
        (RAGGED, lambda examples: None, "the batch of data.collate is a value of type NoneType: give the pair"),
        (RAGGED, lambda examples: pad(examples[:1]), r"data.collate made inputs.input_ids of shape \(1, 3\) from 5 "),
        (RAGGED, lambda examples: {"x": 1.0, "label": [0] * 5}, r"data.collate made inputs.x of shape \(\) from 5"),
        ([], pad, "train: there are no examples"),
    ],
)
def test_mistakes_are_named_in_one_line(train, collate, reason):
    test = RAGGED if collate else EXAMPLES
    test = [*test, test[0]]
    with pytest.raises(OffbeatError, match=reason):
        from_user((train, test), "mine", collate=collate)


def test_collate_is_not_for_arrays_that_are_whole():
    inputs, labels = np.zeros((2, 1), np.float32), np.zeros(2, np.int64)
    with pytest.raises(OffbeatError, match=r"data\.collate is for examples, but the data are arrays: leave it out"):
        from_user(Dataset("", inputs, labels, inputs, labels, classes=1), "mine", collate=pad)


def test_a_loader_of_minibatches_is_refused():
    loader = DataLoader(TensorDataset(torch.ones(3, 2), torch.zeros(3)))
    line = r"^mine: train is a DataLoader: return its dataset, of which clients make their own minibatches$"
    with pytest.raises(OffbeatError, match=line):
        from_user((loader, loader), "mine")
