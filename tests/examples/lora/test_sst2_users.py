import numpy as np

from tests.examples.lora.conftest import function


def test_tokens_and_users(base, sentences):
    dataset = function("sst2_users.py", "data")(**base, users=3, length=5, test_examples=2)
    # 101 and 102 are [CLS] and [SEP], with which cut sentences end, too; 0 is padding.
    assert dataset.train_inputs[:2].tolist() == [[101, 2204, 2028, 102, 0], [101, 2204, 2048, 1010, 102]]
    assert dataset.train_inputs.dtype == np.int64
    assert dataset.train_labels.tolist() == [0, 1] * 10
    assert dataset.test_inputs.shape == (2, 5)
    assert dataset.test_labels.tolist() == [0, 0]  # the first and the last
    assert (dataset.classes, dataset.tokens) == (2, 30_522)
    assert sorted(set(dataset.users)) == [0, 1, 2]


def test_made_up_users():
    labels = np.arange(20_000) % 2
    made_up_users = function("sst2_users.py", "made_up_users")
    users = made_up_users(labels, 50)
    assert np.array_equal(users, made_up_users(labels, 50))
    sizes, positive = np.bincount(users, minlength=50), np.bincount(users, weights=labels, minlength=50)
    # The share of one of two independent exponential numbers in their sum is uniform.
    assert [bool((abs(positive / sizes - middle) < 0.2).sum() > 5) for middle in (0.2, 0.5, 0.8)] == [True] * 3
    assert sizes.max() > 4 * sizes.min() > 0
    assert sorted(made_up_users(np.array([0, 1, 1]), 3)) == [0, 1, 2]
