"""Properties of all partitions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from offbeat_core.errors import OffbeatError

from offbeat.population import partition

LABELS = np.sort(np.arange(10_000) % 10)
BY_LABELS = {
    "iid": partition.iid,
    "dirichlet": lambda labels, clients, seed: partition.dirichlet(labels, clients, 0.3, seed),
    "dirichlet, steep": lambda labels, clients, seed: partition.dirichlet(labels, clients, 1e-300, seed),
    "dirichlet, flat": lambda labels, clients, seed: partition.dirichlet(labels, clients, 1e9, seed),
    "one_class": partition.one_class,
    "one_class, sizes": lambda labels, clients, seed: partition.one_class(labels, clients, seed, 0.5),
    "mixing": lambda labels, clients, seed: partition.mixing(labels, clients, 0.5, seed),
    "quantity_skew": lambda labels, clients, seed: partition.quantity_skew(labels, clients, 0.5, seed),
}
BY_HOUR = {
    "by_hour": lambda labels, clients, seed: partition.by_hour(
        labels > np.median(labels), np.linspace(0, 23, clients), 0.25, seed
    )
}
ALL = {**BY_LABELS, **BY_HOUR, "by_user": partition.by_user}
del ALL["dirichlet, steep"]  # one client has a whole class for any seed
by_labels = pytest.mark.parametrize("divide", BY_LABELS.values(), ids=BY_LABELS)
all_partitions = pytest.mark.parametrize("divide", ALL.values(), ids=ALL)


@st.composite
def cases(draw):
    """Labels that any partition can divide: no more classes than clients, enough examples of each class."""
    clients = draw(st.integers(1, 12))
    names = draw(st.lists(st.integers(0, 99), min_size=1, max_size=clients, unique=True))
    enough = -(-clients // len(names))
    labels = np.repeat(names, [enough + draw(st.integers(0, 9)) for _ in names])
    return np.random.default_rng(draw(st.integers(0, 99))).permutation(labels), clients, draw(st.integers(0, 2**63 - 1))


@by_labels
@given(case=cases())
def test_each_example_is_with_one_client_and_no_client_without(divide, case):
    labels, clients, seed = case
    parts = divide(labels, clients, seed)
    assert len(parts) == clients
    assert all(len(part) > 0 and part.dtype == np.int64 for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))


@all_partitions
def test_a_seed_gives_the_same_again_and_another_seed_does_not(divide):
    first, again, other = (divide(LABELS, 10, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


@all_partitions
def test_a_clients_examples_lie_in_random_order(divide):
    # LABELS is sorted, so an order by class would show as one by number.
    for part in divide(LABELS, 10, 0):
        assert abs(np.corrcoef(np.arange(len(part)), part)[0, 1]) < 5 / np.sqrt(len(part))


@all_partitions
def test_only_the_order_of_the_labels_matters_not_their_values(divide):
    for part, same in zip(divide(LABELS, 10, 0), divide(LABELS * 7 + 3, 10, 0), strict=True):
        np.testing.assert_array_equal(part, same)


@pytest.mark.parametrize("name", ["iid", "quantity_skew"])
def test_labels_are_mixed_where_only_their_number_matters(name, class_counts):
    parts = ALL[name](LABELS, 10, 0)
    for part, same in zip(parts, ALL[name](LABELS[::-1] // 3, 10, 0), strict=True):
        np.testing.assert_array_equal(part, same)
    counts = class_counts(parts, LABELS)
    # About 100 each, as often as a class is: a deviation of 10 around a tenth of the client's size.
    np.testing.assert_allclose(counts, np.tile(counts.sum(axis=0) / 10, (10, 1)), atol=50)


@pytest.mark.parametrize("clients", [0, 11])
@pytest.mark.parametrize("divide", (BY_LABELS | BY_HOUR).values(), ids=BY_LABELS | BY_HOUR)
def test_too_few_or_too_many_clients_are_refused(divide, clients):
    with pytest.raises(OffbeatError, match=f"^{clients} clients cannot share 10 examples: .* between 1 and 10"):
        divide(np.arange(10), clients, 0)


@pytest.mark.parametrize(
    ("divide", "name", "limit"),
    [
        (lambda value: partition.dirichlet(LABELS, 10, value, 0), "alpha", r"1e\+09"),
        (lambda value: partition.quantity_skew(LABELS, 10, value, 0), "sigma", r"1e\+06"),
        (lambda value: partition.one_class(LABELS, 10, 0, value), "sigma", r"1e\+06"),
    ],
)
def test_parameters_that_are_too_large_are_refused(divide, name, limit):
    with pytest.raises(OffbeatError, match=f"^{name} is 10000000000.0, but must be at most {limit}"):
        divide(1e10)
