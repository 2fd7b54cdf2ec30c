import numpy as np
import pytest
from sklearn.datasets import load_digits

from offbeat.data.builtin import digits


@pytest.fixture(scope="module")
def dataset():
    return digits.load()


def test_shapes_and_types(dataset):
    assert dataset.train_inputs.shape == (1433, 1, 8, 8)
    assert dataset.test_inputs.shape == (364, 1, 8, 8)
    assert dataset.train_inputs.dtype == dataset.test_inputs.dtype == np.float32
    assert dataset.train_labels.dtype == dataset.test_labels.dtype == np.int64
    assert dataset.classes == 10


def test_every_image_is_in_one_part_with_its_label(dataset):
    images, labels = load_digits(return_X_y=True)
    expected = sorted((*image, label) for image, label in zip(images / 16, labels, strict=True))
    inputs = np.concatenate([dataset.train_inputs, dataset.test_inputs]).reshape(-1, 64)
    found = np.column_stack([inputs, np.concatenate([dataset.train_labels, dataset.test_labels])])
    assert sorted(map(tuple, found.tolist())) == expected
    train, test = np.bincount(dataset.train_labels), np.bincount(dataset.test_labels)
    assert np.abs(test - (train + test) / 5).max() < 1
