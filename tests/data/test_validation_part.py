from dataclasses import replace

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.data.dataset import Dataset
from offbeat.data.validation_part import with_validation_part


def dataset(examples, users=None):
    inputs = np.arange(examples, dtype=np.float32)[:, None]
    test = -np.ones((3, 1), np.float32)
    return Dataset("a", inputs, np.arange(examples), test, np.zeros(3, np.int64), None, users=users)


def test_a_share_takes_the_place_of_the_test_set_and_is_not_trained_on():
    divided = with_validation_part(dataset(50), 0.2)
    train, test = divided.train_inputs[:, 0].tolist(), divided.test_inputs[:, 0].tolist()
    assert len(test) == 10
    assert sorted(train + test) == list(range(50))
    assert train == sorted(train)
    assert test != list(range(40, 50))  # not a run of neighbours, which may be of one label
    assert (divided.train_labels.tolist(), divided.test_labels.tolist()) == (train, test)
    assert with_validation_part(dataset(50), 0.2).test_labels.tolist() == test


def test_each_user_gives_its_share_and_inputs_may_have_names():
    users = np.array([0] * 5 + [1] * 10 + [2] * 4)
    named = {"ids": np.arange(19), "mask": np.arange(19) + 100}
    divided = with_validation_part(replace(dataset(19, users), train_inputs=named), 0.2)
    assert np.bincount(users[divided.test_labels], minlength=3).tolist() == [1, 2, 0]
    assert np.bincount(divided.users).tolist() == [4, 8, 4]
    assert divided.test_inputs["ids"].tolist() == divided.test_labels.tolist()
    assert divided.train_inputs["mask"].tolist() == (divided.train_labels + 100).tolist()


def test_what_cannot_be_divided_is_one_line(tmp_path):
    with pytest.raises(OffbeatError, match=r"^4 training examples are too few for a validation part of 0\.2 of them$"):
        with_validation_part(dataset(4), 0.2)
    on_disk = np.memmap(tmp_path / "a", np.float32, "w+", shape=(50, 1))
    with pytest.raises(OffbeatError, match=r"^the training examples are on disk: "):
        with_validation_part(replace(dataset(50), train_inputs=on_disk), 0.2)
