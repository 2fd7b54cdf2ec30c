import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbeat.algorithms.components.schedules.patterns import (
    PATTERNS,
    Pattern,
    full,
    imbalanced,
    own,
    random,
    round_robin,
)

BUILT_IN = st.one_of(
    st.builds(full, every=st.integers(1, 9)),
    st.builds(round_robin, k=st.integers(1, 9), every=st.integers(1, 5)),
    st.builds(random, p=st.floats(0.05, 1), seed=st.integers(0, 2**63 - 1)),
    st.just(imbalanced()),
)


def talks(pattern: Pattern, client: int, clients: int, until: int) -> list[int]:
    """Return the rounds up to ``until`` in which a client talks that begins in round 0."""
    rounds = [0]
    while rounds[-1] <= until:
        rounds.append(pattern.next_round(client, rounds[-1], clients))
        assert rounds[-1] > rounds[-2]
    return rounds[1:-1]


@pytest.mark.parametrize(
    ("pattern", "clients", "expected"),
    [
        (full(), 2, [[1, 2, 3, 4], [1, 2, 3, 4]]),
        (full(every=3), 2, [[3, 6, 9, 12], [3, 6, 9, 12]]),
        (round_robin(), 5, [[1, 4, 7, 10], [1, 4, 7, 10], [2, 5, 8, 11], [2, 5, 8, 11], [3, 6, 9, 12]]),
        (round_robin(k=2, every=5), 4, [[5, 15, 25], [5, 15, 25], [10, 20, 30], [10, 20, 30]]),
        (round_robin(k=1, every=2), 3, [[2, 8, 14], [4, 10, 16], [6, 12, 18]]),
        (round_robin(k=9, every=2), 2, [[2, 4, 6], [2, 4, 6]]),
        (imbalanced(), 4, [[1, 2, 3, 4, 5], [2, 4, 6], [3, 6, 9], [4, 8, 12]]),
        (random(p=1.0), 2, [[1, 2, 3], [1, 2, 3]]),
        (own(lambda client, last, clients: last * 2 + client + clients, 99), 2, [[2, 6, 14, 30], [3, 9, 21]]),
    ],
)
def test_the_rounds_in_which_each_client_talks_by_hand(pattern, clients, expected):
    assert [talks(pattern, client, clients, max(rounds)) for client, rounds in enumerate(expected)] == expected


@given(BUILT_IN, st.integers(1, 12), st.data())
def test_next_round_is_the_first_later_round_of_the_client(pattern, clients, data):
    client = data.draw(st.integers(0, clients - 1))
    rounds = talks(pattern, client, clients, 120)
    for last in range(80):
        following = next((number for number in rounds if number > last), None)
        if following is not None:
            assert pattern.next_round(client, last, clients) == following


@pytest.mark.parametrize(
    ("pattern", "clients", "gap"),
    [
        (full(), 7, 1),
        (full(every=5), 7, 5),
        (round_robin(k=2, every=1), 10, 5),
        (round_robin(k=2, every=5), 10, 25),
        (round_robin(k=3, every=2), 10, 8),
        (round_robin(k=3), 2, 1),
        (imbalanced(), 10, 10),
        (own(lambda client, last, clients: last + 1, longest_gap=6), 10, 6),
    ],
)
def test_the_longest_gap_by_hand(pattern, clients, gap):
    assert pattern.longest_gap(clients) == gap
    if pattern.own is None:
        rounds = [[0, *talks(pattern, client, clients, 100)] for client in range(clients)]
        assert max(max(np.diff(own)) for own in rounds) == gap


@given(st.integers(1, 5000))
def test_the_gap_of_random_is_the_mean_gap_rounded_up(mean):
    assert random(p=1 / mean).longest_gap(10) == mean
    assert random(p=1 / (mean + 0.5)).longest_gap(10) == mean + 1


def test_random_draws_are_independent_and_have_the_probability():
    probability, rounds = 0.2, 4000
    spoke = np.zeros((6, rounds + 1))
    for row, (client, seed) in enumerate([(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (999_999, 0)]):
        spoke[row, talks(random(p=probability, seed=seed), client, 10**6, rounds)] = 1
    spoke = spoke[:, 1:]
    # A mean of 4000 draws has a standard deviation of 0.0063, a correlation of two rows or two rounds of 0.016.
    assert abs(spoke.mean(axis=1) - probability).max() < 0.03
    assert abs(np.corrcoef(spoke) - np.eye(6)).max() < 0.08
    assert all(abs(np.corrcoef(row[1:], row[:-1])[0, 1]) < 0.08 for row in spoke)


def test_random_is_a_function_of_seed_client_and_round_alone():
    before = talks(random(p=0.3, seed=5), 2, 10, 50)
    talks(random(p=0.3, seed=6), 1, 10, 50)
    assert talks(random(p=0.3, seed=5), 2, 1000, 50) == before
    # Whoever talks at p talks at any larger p.
    assert set(before) < set(talks(random(p=0.6, seed=5), 2, 10, 50))


@pytest.mark.parametrize(
    ("returned", "last"), [(4, 4), (3, 4), (-1, 4), (4.5, 4), (5.0, 4), (None, 4), ("6", 4), (0, 0), (True, 0)]
)
def test_an_own_rule_must_return_a_later_round(returned, last):
    pattern = own(lambda client, last, clients: returned, longest_gap=3, name="rules.py:mine")
    message = rf"pattern rules\.py:mine: client 2 is to talk next in round {returned!r}, .* greater than {last}"
    with pytest.raises(ValueError, match=message):
        pattern.next_round(2, last, 10)


def test_an_own_rule_may_return_numpys_numbers():
    following = own(lambda client, last, clients: np.int64(last + client), longest_gap=3).next_round(2, 4, 10)
    assert (following, type(following)) == (6, int)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: full(every=0), "every must be a whole number of at least 1, got 0"),
        (lambda: full(every=1.5), "every"),
        (lambda: round_robin(k=0), "k must be a whole number of at least 1, got 0"),
        (lambda: round_robin(every=-1), "every"),
        (lambda: random(p=0.0), r"p must be in \[0.0001, 1\], got 0.0"),
        (lambda: random(p=0.99e-4), "p must be in"),
        (lambda: random(p=1.1), "p must be in"),
        (lambda: random(p=math.nan), "p must be in"),
        (lambda: random(seed=-1), "seed must be a whole number in 0 … 2⁶³ − 1, got -1"),
        (lambda: random(seed=2**63), "seed"),
        (lambda: random(seed=1.5), "seed"),
        (lambda: own(max, longest_gap=0), "longest_gap must be a whole number of at least 1, got 0"),
    ],
)
def test_parameters_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_patterns_are_found_by_name_and_can_be_pickled():
    assert set(PATTERNS) == {"full", "round_robin", "random", "imbalanced"}
    for name, make in PATTERNS.items():
        copy = pickle.loads(pickle.dumps(make()))
        assert copy == make()
        assert copy.name == name
        assert copy.next_round(3, 10, 5) == make().next_round(3, 10, 5)
