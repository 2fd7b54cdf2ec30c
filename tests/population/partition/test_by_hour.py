import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.population.partition import by_hour

LABELS = np.arange(48_000) % 2


def share(labels, parts):
    return np.array([labels[part].mean() for part in parts])


@pytest.mark.parametrize(
    ("middle", "expected"),
    [
        # Who is there around noon tweets from 0:00 to 1:00, which has alpha = ¼; each hour is 1/24 from the next.
        (12.0, 6 / 24),
        (12.99, 6 / 24),
        (13.0, 7 / 24),
        (11.99, 7 / 24),
        (18.5, 12 / 24),
        (6.5, 12 / 24),
        (23.0, 17 / 24),
        (0.0, 18 / 24),
        (0.99, 18 / 24),
        (1.0, 17 / 24),
    ],
)
def test_the_papers_rule(middle, expected):
    # With one that is there opposite, so that half of all are positive.
    found = share(LABELS, by_hour(LABELS, np.array([middle, (middle + 12) % 24]), 0.25, 0))
    np.testing.assert_allclose(found, [expected, 1 - expected], atol=1e-4)


@given(
    st.lists(st.floats(0, 24, exclude_max=True), min_size=1, max_size=12),
    st.floats(0, 1),
    st.integers(1, 40),
    st.integers(1, 40),
)
@example([np.nextafter(24.0, 0.0)], 0.0, 1, 40)  # twelve hours later it is still before noon
def test_equal_sizes_the_largest_and_shares_to_one_example(middles, alpha, negative, positive):
    labels = np.random.default_rng(negative).permutation(np.repeat([3, 8], [negative, positive]))
    hours = (np.floor(middles) + 12) % 24
    wanted = alpha + (1 - 2 * alpha) * np.minimum(hours, 24 - hours) / 12
    fits = {
        size: size * wanted.sum() <= positive + 1e-3 and size * (1 - wanted).sum() <= negative + 1e-3
        for size in range(1, 81)
    }
    largest = max((size for size, ok in fits.items() if ok), default=0)
    try:
        parts = by_hour(labels, np.array(middles), alpha, 1)
    except OffbeatError:
        assert largest <= 1 or len(middles) > len(labels)
        return
    (size,) = {len(part) for part in parts}
    # One less only where a share that is rounded to a millionth decides.
    assert size in (largest, largest - 1)
    held = np.concatenate(parts)
    assert len(np.unique(held)) == len(held)
    found = np.array([(labels[part] == 8).sum() for part in parts])
    assert np.all(np.abs(found - size * wanted) <= 1 + 1e-3)


def test_what_is_left_of_the_more_frequent_class_is_not_used():
    labels = np.repeat([0, 1], [90, 30])
    parts = by_hour(labels, np.array([1.0, 7.0, 20.0]), 0.5, 0)
    assert [np.bincount(labels[part]).tolist() for part in parts] == [[10, 10]] * 3
    # Which ones is random: a mean of 30 numbers drawn from 0 … 89 has a deviation of about 4.
    used = np.concatenate([part[labels[part] == 0] for part in parts])
    assert abs(used.mean() - 44.5) < 18


def test_running_sums_are_the_nearest_to_the_wanted_ones():
    labels = np.repeat([0, 1], [24, 16])
    parts = by_hour(labels, np.full(10, 12.0), 0.4, 0)
    # Of four examples each 1.6 positive ones: together 1.6, 3.2, 4.8, 6.4, 8, …
    assert [labels[part].sum() for part in parts] == [2, 1, 2, 1, 2] * 2


@pytest.mark.parametrize("labels", [np.zeros(10, np.int64), np.arange(10) % 3])
def test_not_two_labels(labels):
    number = len(set(labels.tolist()))
    with pytest.raises(OffbeatError, match=f"^by_hour balances two labels, but the training examples have {number}: "):
        by_hour(labels, np.array([1.0]), 0.5, 0)


def test_too_few_examples_of_a_class():
    labels = np.repeat([4, 7], [20, 1])
    with pytest.raises(OffbeatError, match=r"^3 clients cannot share 20 examples of class 4 and 1 of class 7 so that"):
        by_hour(labels, np.array([1.0, 2.0, 3.0]), 0.5, 0)
