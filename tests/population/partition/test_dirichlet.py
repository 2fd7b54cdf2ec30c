import numpy as np
import pytest

from offbeat.population.partition import dirichlet

LABELS = np.arange(10_000) % 10


@pytest.fixture(scope="module")
def shares(class_counts):
    """Return ``(classes, clients)``: which share of a class's examples a client holds."""

    def share(parts, labels):
        counts = class_counts(parts, labels)
        return counts / counts.sum(axis=1, keepdims=True)

    return share


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_shares_have_the_distributions_moments(shares, alpha):
    """A marginal of Dir_N(alpha) has mean 1/N and variance (1/N)(1 - 1/N) / (N alpha + 1)."""
    clients = 10
    found = np.stack([shares(dirichlet(LABELS, clients, alpha, seed), LABELS) for seed in range(100)])
    # Clients are alike: none is favoured by its place. 1,000 shares a client.
    variance = 0.1 * 0.9 / (clients * alpha + 1)
    np.testing.assert_allclose(found.mean(axis=(0, 1)), 0.1, atol=5 * np.sqrt(variance / 1000))
    assert found.var() == pytest.approx(variance, rel=0.07)


def test_classes_are_divided_independently(shares):
    found = np.concatenate([shares(dirichlet(LABELS, 10, 1.0, seed), LABELS)[:2].T for seed in range(200)])
    assert abs(np.corrcoef(found[:, 0], found[:, 1])[0, 1]) < 0.1


def test_takes_from_the_richest_for_those_with_nothing():
    # With nearly no concentration, one client gets the whole class; the others then get one example each.
    parts = dirichlet(np.zeros(100, np.int64), 30, 1e-300, 0)
    assert sorted(len(part) for part in parts) == [1] * 29 + [71]
    # Two classes, two rich clients: they give in turn.
    sizes = {tuple(sorted(map(len, dirichlet(np.arange(100) % 2, 30, 1e-300, seed)))[-2:]) for seed in range(9)}
    assert (36, 36) in sizes


def test_rounding_favours_nobody():
    # Cutting at floors instead would give the last client five examples more, half a one a class.
    sizes = np.mean([[len(part) for part in dirichlet(LABELS, 100, 1e3, seed)] for seed in range(50)], axis=0)
    np.testing.assert_allclose(sizes, 100, atol=1.5)
