from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from offbeat.algorithms import Update
from offbeat.coordinator.selection import POOLS, FastestPool, LongestAbsentPool, UniformPool
from tests.effort import cases


def counted(client, version):
    """Return an update that has counted; a pool looks at nothing else of it."""
    return Update(client, version, torch.zeros(1), examples=1, steps=1, normaliser=1.0)


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


# --- Longest absent first. ---

POOL_ACTIONS = ["add", "discard", "pick", "take", "counted", "restart"]


@settings(max_examples=cases(300))
@given(st.lists(st.tuples(st.sampled_from(POOL_ACTIONS), st.integers(0, 5), st.integers(0, 3)), max_size=80))
def test_next_is_who_has_not_counted_for_longest_and_of_equals_the_first(script):
    pool, inside, last, version = LongestAbsentPool(6, seed=1), set(), dict.fromkeys(range(6), -1), 0
    for action, client, versions_made in script:
        if action == "add":
            pool.add(client)
            inside.add(client)
        elif action == "discard":
            pool.discard(client)
            inside.discard(client)
        elif action == "take":
            pool.take(client)
            inside.discard(client)
        elif action == "pick" and inside:
            expected = min(inside, key=lambda each: (last[each], each))
            assert pool.pick() == expected
            inside.remove(expected)
        elif action == "counted":
            version += versions_made
            pool.counted(counted(client, version))
            last[client] = version
        elif action == "restart":
            state, pool = pool.state_dict(), LongestAbsentPool(6, seed=1)
            pool.load_state_dict(state)
        assert len(pool) == len(inside)
    assert [pool.pick() for _ in range(len(pool))] == sorted(inside, key=lambda each: (last[each], each))


def test_at_first_nobody_has_ever_counted_and_the_first_come_first():
    pool = LongestAbsentPool(4, seed=1)
    for client in (2, 0, 3, 1):
        pool.add(client)
    assert [pool.pick() for _ in range(4)] == [0, 1, 2, 3]


def test_who_is_picked_but_does_not_count_stays_first():
    pool = LongestAbsentPool(3, seed=1)
    for client in range(3):
        pool.add(client)
    pool.counted(counted(0, 0))
    assert [pool.pick(), pool.pick()] == [1, 2]
    pool.counted(counted(1, 1))
    for client in (1, 2):
        pool.add(client)
    assert [pool.pick() for _ in range(3)] == [2, 0, 1]


@pytest.mark.parametrize("first", [[], list(range(500, 1000))], ids=["few inside", "many inside"])
@pytest.mark.parametrize(
    "cycle",
    [
        lambda pool, client, version: (pool.add(client), pool.discard(client)),
        lambda pool, client, version: (pool.add(client), pool.take(client)),
        lambda pool, client, version: (pool.add(client), pool.counted(counted(client, version))),
        lambda pool, client, version: (
            pool.add(client),
            pool.pick(),
            pool.add(client),
            pool.counted(counted(client, version)),
        ),
    ],
    ids=["come and go", "taken", "counted inside", "picked"],
)
def test_the_heap_stays_small_however_often_clients_come_and_go(cycle, first):
    pool = LongestAbsentPool(1000, seed=1)
    for client in first:
        pool.add(client)
    for version in range(5000):
        cycle(pool, version % 7, version)
    assert len(pool._heap) <= 2 * len(first) + 100


def test_a_pick_from_many_clients_takes_few_comparisons():
    compared = 0

    class Counting(tuple):
        __slots__ = ()

        def __lt__(self, other):
            nonlocal compared
            compared += 1
            return tuple.__lt__(self, other)

    pool = LongestAbsentPool(20_000, seed=1)
    for client in range(20_000):
        pool.add(client)
    pool._heap = [Counting(entry) for entry in pool._heap]
    for version in range(100):
        client = pool.pick()
        pool.counted(counted(client, version))
    assert 0 < compared < 100 * 50


# --- Fastest first. ---


def test_the_fastest_comes_first_and_those_without_times_before_all():
    pool = FastestPool(5, seed=1)
    for client in range(5):
        pool.add(client)
    for client, step_seconds, upload_seconds in ((0, 0.5, 6.0), (1, 1.0, 4.0), (2, 2.0, 0.0), (4, None, None)):
        update = counted(client, 0)._replace(steps=4, step_seconds=step_seconds, upload_seconds=upload_seconds)
        pool.counted(update)
    assert [pool.pick() for _ in range(5)] == [3, 4, 0, 1, 2]  # 2, 2 and 2 s a step
    pool.add(1)
    pool.add(2)
    pool.counted(counted(1, 1)._replace(step_seconds=3.0))
    restored = FastestPool(5, seed=1)
    restored.load_state_dict(pool.state_dict())
    assert [restored.pick() for _ in range(2)] == [2, 1]
