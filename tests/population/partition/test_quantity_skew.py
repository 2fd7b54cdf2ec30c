import numpy as np
import pytest

from offbeat.population.partition import quantity_skew

LABELS = np.arange(100_000) % 10


@pytest.mark.parametrize("sigma", [0.0, 0.05, 0.3])
def test_sizes_differ_as_much_as_requested(sigma):
    sizes = np.array([[len(part) for part in quantity_skew(LABELS, 1000, sigma, seed)] for seed in range(5)])
    assert np.all(sizes.sum(axis=1) == 100_000)
    # 5,000 sizes: their deviation is known to 1 %; rounding adds up to ½.
    assert sizes.std() == pytest.approx(sigma * 100, rel=0.05, abs=0.5)
