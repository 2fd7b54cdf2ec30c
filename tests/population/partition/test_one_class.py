import numpy as np
import pytest
from offbeat_core.errors import OffbeatError

from offbeat.population.partition import one_class


@pytest.mark.parametrize(
    ("clients", "classes"),
    [
        (5, [2, 4, 5, 7, 9]),
        (6, [2, 2, 4, 5, 7, 9]),
        (8, [2, 2, 4, 4, 5, 7, 7, 9]),  # ⌊5 i / 8⌋ = 0, 0, 1, 1, 2, 3, 3, 4
    ],
)
def test_which_client_has_which_class(clients, classes):
    labels = np.tile([9, 2, 5, 4, 7], 20)
    parts = one_class(labels, clients, 0)
    assert [np.unique(labels[part]).tolist() for part in parts] == [[label] for label in classes]


@pytest.mark.parametrize("sigma", [0.0, -0.0])
def test_a_class_is_divided_evenly_and_at_random_among_its_clients(sigma):
    labels = np.repeat([0, 1], [11, 200])
    parts = one_class(labels, 6, 0, sigma)
    assert [len(part) for part in parts] == [4, 4, 3, 67, 67, 66]
    # A mean of 67 numbers drawn from 11 … 210 has a deviation of about 6.
    assert all(abs(part.mean() - 110.5) < 30 for part in parts[3:])


def test_the_papers_sizes_are_normal_within_a_class():
    # Twice as many of class 1, so that its clients' mean and deviation are twice class 0's: 60 and 10, 120 and 20.
    labels = np.repeat([0, 1], [60_000, 120_000])
    parts = one_class(labels, 2000, 3, 1 / 6)
    assert [set(labels[part]) for part in parts] == [{0}] * 1000 + [{1}] * 1000
    sizes = np.array([len(part) for part in parts]).reshape(2, 1000)
    assert sizes.sum(axis=1).tolist() == [60_000, 120_000]
    # A deviation of 1000 numbers is known to 2.2 %.
    np.testing.assert_allclose(sizes.std(axis=1), [10, 20], rtol=0.09)
    # Nearly 68 % within one deviation, 95 % within two; sizes are whole numbers.
    for number, expected in ((1, 0.683), (2, 0.954)):
        within = np.abs(sizes - [[60], [120]]) <= number * np.array([[10], [20]])
        np.testing.assert_allclose(within.mean(axis=1), expected, atol=0.06)
    assert abs(np.corrcoef(sizes)[0, 1]) < 0.15


def test_fewer_clients_than_classes():
    with pytest.raises(OffbeatError, match=r"^9 clients cannot hold one class each of 10: ask for 10 clients or more$"):
        one_class(np.arange(100) % 10, 9, 0)


def test_a_class_with_fewer_examples_than_clients():
    labels = np.repeat([4, 7, 8], [50, 2, 50])
    assert len(one_class(labels, 7, 0)) == 7
    with pytest.raises(OffbeatError, match=r"^class 7 has 2 examples, but 3 of the 8 clients are to share them: ask"):
        one_class(labels, 8, 0)
