import dataclasses
import hashlib

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.data import Dataset, MissingDataError


def test_input_shape_is_that_of_one_example():
    inputs = np.zeros((7, 1, 2, 3), np.float32)
    labels = np.zeros(7, np.int64)
    assert Dataset("a", inputs, labels, inputs[:2], labels[:2], classes=4).input_shape == (1, 2, 3)


def test_missing_data_is_the_users_to_mend():
    assert issubclass(MissingDataError, OffbeatError)


WORDS = np.array([[1, 2], [3, 4]])
NAMED = Dataset("a", {"x": WORDS, "y": WORDS > 2}, np.zeros(2), {"x": WORDS, "y": WORDS > 2}, np.zeros(2), classes=None)


def test_inputs_by_name_have_no_single_shape():
    with pytest.raises(OffbeatError, match=r"^a has inputs by name \(x, y\): use a model of your own$"):
        _ = NAMED.input_shape


def test_the_fingerprint_depends_on_names_and_values_but_not_on_their_order():
    def fingerprint(train):
        return dataclasses.replace(NAMED, train_inputs=train).fingerprint

    same = fingerprint({"y": WORDS > 2, "x": WORDS})
    assert same == NAMED.fingerprint
    others = [{"x": WORDS}, {"x": WORDS, "z": WORDS > 2}, {"x": WORDS, "y": WORDS > 3}, {"x": WORDS > 2, "y": WORDS}]
    assert len({same, fingerprint(WORDS), *map(fingerprint, others)}) == 6


def test_the_fingerprint_of_one_array_is_as_in_earlier_runs():
    """Runs resume only if it is."""
    digest = hashlib.blake2b(b"float32 (2, 1)", digest_size=8)
    inputs, labels = np.float32([[1], [2]]), np.array([0, 1])
    digest.update(inputs.tobytes() + b"int64 (2,)" + labels.tobytes())
    digest.update(b"float32 (1, 1)" + inputs[:1].tobytes() + b"int64 (1,)" + labels[:1].tobytes())
    assert Dataset("a", inputs, labels, inputs[:1], labels[:1], classes=2).fingerprint == digest.hexdigest()
