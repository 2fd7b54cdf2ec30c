from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.population.partition import iid, quantity_skew
from offbeat.population.partition.shards import fill_empty, hold_out, integer_sizes, normal_sizes, shards_by_owner


def test_shards_by_owner_leaves_out_unowned_examples_and_keeps_empty_clients():
    shards = shards_by_owner(np.array([2, -1, 0, 2, -1, 0, 0]), 4, np.random.default_rng(0))
    assert [sorted(shard.tolist()) for shard in shards] == [[2, 5, 6], [], [0, 3], []]


def test_the_running_sums_of_integer_sizes_are_the_nearest():
    # 0.4, 0.8, 1.2, 1.6, 2.0 → 0, 1, 1, 2, 2
    assert integer_sizes(np.arange(1, 6) * 0.4).tolist() == [0, 1, 0, 1, 0]


def test_fill_empty_takes_from_the_largest_shard_at_that_time():
    shards = [np.array(shard, np.int64) for shard in ([], [0, 1, 2], [3, 4], [], [])]
    fill_empty(shards)
    # The second gives 2; then it and the third have two, and the first of equals gives; then the third.
    assert [shard.tolist() for shard in shards] == [[2], [0], [3], [1], [4]]


def sizes(examples, clients, sigma, seed):
    return normal_sizes(examples, clients, sigma, np.random.default_rng(seed))


@given(st.integers(1, 60), st.sampled_from([0.0, 0.01, 0.3, 1.0, 30.0, 1e6]), st.data())
def test_sizes_are_at_least_one_and_add_up(examples, sigma, data):
    clients = data.draw(st.integers(1, examples))
    found = sizes(examples, clients, sigma, data.draw(st.integers(0, 2**63 - 1)))
    assert found.shape == (clients,)
    assert found.dtype == np.int64
    assert found.min() >= 1
    assert found.sum() == examples
    if sigma == 0:
        assert found.max() - found.min() <= 1
        assert sizes(examples, clients, -0.0, 1).tolist() == found.tolist()


@pytest.mark.parametrize("sigma", [0.05, 1 / 6, 0.3])
def test_sizes_are_normal(sigma):
    found = np.stack([sizes(100_000, 1000, sigma, seed) for seed in range(20)])
    wanted = NormalDist(100, sigma * 100)
    # 20,000 sizes: their deviation is known to 0.5 %; rounding adds 1/6 to the variance.
    assert found.std() == pytest.approx(np.sqrt(wanted.variance + 1 / 6), rel=0.03)
    # Halves, since sizes are whole numbers.
    for below in (100.5 - round(sigma * 100), 100.5, 100.5 + round(sigma * 100)):
        assert np.mean(found < below) == pytest.approx(wanted.cdf(below), abs=0.02)
    # No client is favoured by its place.
    assert abs(np.corrcoef(np.arange(1000), found.mean(axis=0))[0, 1]) < 0.15


def test_many_clients_have_one_example_where_the_spread_is_large():
    """With sizes max(1, 100 + 100 z - s), find the s for which their mean is 100, and how many are then 1."""
    z = NormalDist()

    def mean_above_one(s):  # of max(0, 99 + 100 z - s)
        edge = (s - 99) / 100
        return 100 * (z.pdf(edge) - edge * (1 - z.cdf(edge)))

    low, high = 0.0, 100.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_above_one(middle) > 99 else (low, middle)
    assert mean_above_one(low) == pytest.approx(99)

    found = np.stack([sizes(100_000, 1000, 1.0, seed) for seed in range(20)])
    assert np.mean(found == 1) == pytest.approx(z.cdf((low - 99) / 100), abs=0.015)


@given(st.integers(1, 60), st.data())
def test_sizes_differ_by_one_at_most(examples, data):
    clients = data.draw(st.integers(1, examples))
    sizes = [len(part) for part in iid(np.zeros(examples, np.int64), clients, data.draw(st.integers(0, 2**63 - 1)))]
    assert max(sizes) - min(sizes) <= 1


LABELS = np.arange(100_000) % 10


@pytest.mark.parametrize("sigma", [0.0, 0.05, 0.3])
def test_sizes_differ_as_much_as_requested(sigma):
    sizes = np.array([[len(part) for part in quantity_skew(LABELS, 1000, sigma, seed)] for seed in range(5)])
    assert np.all(sizes.sum(axis=1) == 100_000)
    # 5,000 sizes: their deviation is known to 1 %; rounding adds up to ½.
    assert sizes.std() == pytest.approx(sigma * 100, rel=0.05, abs=0.5)


SHARDS = [np.arange(100, 110), np.arange(50, 53), np.array([7]), np.array([4, 2]), np.arange(0)]


def test_each_example_is_in_one_part_and_in_its_order():
    kept, held_out = hold_out(SHARDS, 0.2, 1)
    for shard, mine, rest in zip(SHARDS, kept, held_out, strict=True):
        assert sorted([*mine, *rest]) == sorted(shard)
        assert mine.tolist() == [number for number in shard if number in mine]
        assert rest.tolist() == [number for number in shard if number in rest]
        assert mine.dtype == rest.dtype == shard.dtype


@pytest.mark.parametrize(
    ("share", "sizes"),
    [(0.0, [0, 0, 0, 0, 0]), (0.2, [2, 1, 0, 0, 0]), (0.75, [8, 2, 0, 1, 0]), (0.99, [9, 2, 0, 1, 0])],
)
def test_a_client_keeps_at_least_one_example(share, sizes):
    assert [len(rest) for rest in hold_out(SHARDS, share, 1)[1]] == sizes


def test_the_choice_is_random_and_depends_on_seed_and_client():
    shards = [np.arange(10)] * 400
    one, again, other = (hold_out(shards, 0.3, seed)[1] for seed in (1, 1, 2))
    assert [rest.tolist() for rest in one] == [rest.tolist() for rest in again]
    assert [rest.tolist() for rest in one] != [rest.tolist() for rest in other]
    counts = np.bincount(np.concatenate(one), minlength=10) / 400
    assert np.abs(counts - 0.3).max() < 5 * np.sqrt(0.3 * 0.7 / 400)
