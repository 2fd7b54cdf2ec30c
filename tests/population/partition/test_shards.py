import numpy as np

from offbeat.population.partition.shards import fill_empty, integer_sizes, shards_by_owner


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
