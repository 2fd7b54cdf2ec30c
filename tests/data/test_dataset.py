import numpy as np

from offbeat.data import Dataset, MissingDataError
from offbeat.errors import OffbeatError


def test_input_shape_is_that_of_one_example():
    inputs = np.zeros((7, 1, 2, 3), np.float32)
    labels = np.zeros(7, np.int64)
    assert Dataset("a", inputs, labels, inputs[:2], labels[:2], classes=4).input_shape == (1, 2, 3)


def test_missing_data_is_the_users_to_mend():
    assert issubclass(MissingDataError, OffbeatError)
