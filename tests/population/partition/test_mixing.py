import numpy as np
import pytest

from offbeat.population.partition import mixing, one_class

LABELS = np.arange(10_000) % 10


@pytest.mark.parametrize("mu", [0.0, 0.25, 0.9, 1.0])
def test_the_share_of_the_own_class_is_the_papers(class_counts, mu):
    labels = np.repeat([0, 1, 2], [1000, 3000, 6000])
    counts = np.mean([class_counts(mixing(labels, 3, mu, seed), labels) for seed in range(20)], axis=0)
    np.testing.assert_array_equal(counts.sum(axis=0), [1000, 3000, 6000])
    share = np.array([0.1, 0.3, 0.6])
    expected = (1 - mu) * np.diag(share) + mu * np.outer(share, share)
    np.testing.assert_allclose(counts / 10_000, expected, atol=0.002)


@pytest.mark.parametrize("clients", [10, 25])
def test_without_mixing_it_is_one_class(clients):
    for part, same in zip(mixing(LABELS, clients, 0, 3), one_class(LABELS, clients, 3), strict=True):
        np.testing.assert_array_equal(np.sort(part), np.sort(same))


def test_fewer_clients_than_classes_hold_several_each():
    held = [set(LABELS[part]) for part in mixing(LABELS, 4, 0, 0)]
    # ⌊4 c / 10⌋ is 0 for c = 0, 1, 2; 1 for 3, 4; 2 for 5, 6, 7; 3 for 8, 9.
    assert held == [{0, 1, 2}, {3, 4}, {5, 6, 7}, {8, 9}]


def test_clients_with_one_example_mix_as_much_as_others():
    labels = np.sort(np.arange(100) % 10)
    own = [
        [labels[part[0]] == client // 10 for client, part in enumerate(mixing(labels, 100, 0.4, s))] for s in range(50)
    ]
    # Rounding 0.4 by itself would give 0, and a share of 1.
    assert np.mean(own) == pytest.approx(1 - 0.4 + 0.4 * 0.1, abs=0.02)
