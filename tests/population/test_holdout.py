import numpy as np
import pytest

from offbeat.population.holdout import hold_out

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
