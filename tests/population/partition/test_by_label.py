import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.population.partition import by_hour, dirichlet, mixing, one_class

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


TWO_LABELS = np.arange(48_000) % 2


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
    found = share(TWO_LABELS, by_hour(TWO_LABELS, np.array([middle, (middle + 12) % 24]), 0.25, 0))
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
