import numpy as np

from offbeat.population.partition.shards import by_owner, fill_empty, whole_sizes


def test_by_owner_leaves_out_what_is_nobodys_and_keeps_clients_without_any():
    parts = by_owner(np.array([2, -1, 0, 2, -1, 0, 0]), 4, np.random.default_rng(0))
    assert [sorted(part.tolist()) for part in parts] == [[2, 5, 6], [], [0, 3], []]


def test_whole_sizes_running_sums_are_the_nearest():
    # 0.4, 0.8, 1.2, 1.6, 2.0 → 0, 1, 1, 2, 2
    assert whole_sizes(np.arange(1, 6) * 0.4).tolist() == [0, 1, 0, 1, 0]


def test_fill_empty_takes_from_who_then_has_the_most():
    parts = [np.array(part, np.int64) for part in ([], [0, 1, 2], [3, 4], [], [])]
    fill_empty(parts)
    # The second gives 2; it and the third have two then, and the first of equals gives; then the third.
    assert [part.tolist() for part in parts] == [[2], [0], [3], [1], [4]]
