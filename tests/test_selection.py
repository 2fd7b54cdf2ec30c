from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.selection import POOLS, UniformPool


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(["add", "discard", "pick"]), st.integers(0, 9)), max_size=60))
def test_a_pool_holds_what_was_put_in_and_not_taken_out(script):
    pool = UniformPool(10, seed=3)
    inside: set[int] = set()
    for action, client in script:
        if action == "add":
            pool.add(client)
            inside.add(client)
        elif action == "discard":
            pool.discard(client)
            inside.discard(client)
        elif inside:
            picked = pool.pick()
            assert picked in inside
            inside.remove(picked)
        assert len(pool) == len(inside)
        assert set(pool) == inside


def test_everybody_is_equally_likely():
    pool = UniformPool(5, seed=1)
    picks: Counter[int] = Counter()
    for client in range(5):
        pool.add(client)
    for _ in range(10_000):
        client = pool.pick()
        picks[client] += 1
        pool.add(client)
    # 2000 expected each, standard deviation 40.
    assert all(abs(count - 2000) < 200 for count in picks.values())


def test_the_pick_does_not_favour_those_who_just_came_back():
    pool = UniformPool(100, seed=1)
    for client in range(100):
        pool.add(client)
    repeated = 0
    for _ in range(2000):
        client = pool.pick()
        pool.add(client)
        again = pool.pick()
        pool.add(again)
        repeated += client == again
    assert repeated < 60  # 20 expected


@pytest.mark.parametrize("name", POOLS)
def test_a_pool_goes_on_from_its_state(name):
    pool = POOLS[name](20, 7)
    for client in range(20):
        pool.add(client)
    for _ in range(5):
        pool.pick()
    pool.discard(3)
    other = POOLS[name](20, 7)
    other.load_state_dict(pool.state_dict())
    assert [pool.pick() for _ in range(len(pool))] == [other.pick() for _ in range(len(other))]


def test_seeds_differ():
    def order(seed):
        pool = UniformPool(50, seed)
        for client in range(50):
            pool.add(client)
        return [pool.pick() for _ in range(50)]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == list(range(50))
