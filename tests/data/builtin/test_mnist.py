import numpy as np
import pytest

from offbeat.data.builtin.mnist import FASHION_MNIST, MNIST


@pytest.mark.parametrize(
    ("idx_dataset", "first_labels", "train_counts", "test_counts"),
    [
        # MNIST's first digits are those of every tutorial.
        (
            MNIST,
            [5, 0, 4, 1, 9, 2, 1, 3],
            [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
            [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
        ),
        (FASHION_MNIST, [9, 0, 0, 3, 0, 2, 7, 2], [6_000] * 10, [1_000] * 10),
    ],
    ids=["mnist", "fashion-mnist"],
)
def test_the_real_files(real_data, idx_dataset, first_labels, train_counts, test_counts):
    real_data(idx_dataset.source.name, *idx_dataset.source.files)
    dataset = idx_dataset.load()
    assert dataset.train_inputs.shape == (60_000, 1, 28, 28)
    assert dataset.test_inputs.shape == (10_000, 1, 28, 28)
    assert dataset.train_labels[:8].tolist() == first_labels
    assert np.bincount(dataset.train_labels).tolist() == train_counts
    assert np.bincount(dataset.test_labels).tolist() == test_counts
    assert abs(dataset.train_inputs.mean(dtype=np.float64)) < 1e-3
    assert abs(dataset.train_inputs.std(dtype=np.float64) - 1) < 1e-3
