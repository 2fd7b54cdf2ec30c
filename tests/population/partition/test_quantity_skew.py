import numpy as np
import pytest

from offbeat.errors import OffbeatError
from offbeat.population.partition import quantity_skew

LABELS = np.arange(100_000) % 10


def sizes(labels, clients, sigma, seed):
    return np.array([len(part) for part in quantity_skew(labels, clients, sigma, seed)])


def test_sizes_differ_as_much_as_asked_for():
    for sigma in (0.0, 0.05, 1 / 6, 0.3):
        found = np.stack([sizes(LABELS, 1000, sigma, seed) for seed in range(5)])
        assert np.all(found.sum(axis=1) == 100_000)
        # 5,000 sizes: their deviation is known to 1 %; rounding adds up to ½.
        assert found.std() == pytest.approx(sigma * 100, rel=0.05, abs=0.5)


def test_mixes_the_labels(class_counts):
    labels = np.sort(LABELS)
    counts = class_counts(quantity_skew(labels, 20, 0.2, 0), labels)
    # About 500 each, as often as a class is: a deviation of 21 around a tenth of the client's size.
    np.testing.assert_allclose(counts, np.tile(counts.sum(axis=0) / 10, (10, 1)), atol=110)
    assert counts.sum(axis=0).std() > 500


@pytest.mark.parametrize("sigma", [-0.1, 1.1e6, float("nan"), float("inf")])
def test_sigma_out_of_range(sigma):
    with pytest.raises(OffbeatError, match=r"^sigma is \S+, but must be between 0 and 1e\+06$"):
        quantity_skew(LABELS, 10, sigma, 0)
