import math

import numpy as np
import pytest
from offbeat_core.errors import OffbeatError
from offbeat_core.randomness import Purpose

from offbeat.population.availability import Bernoulli, bernoulli
from offbeat.uniform_numbers import uniform


def available_rounds(availability, client, rounds, seconds):
    """Return the rounds in which the client is available, by walking from event to event."""
    found, time = np.zeros(rounds, np.bool_), 0.0
    while (time := availability.next_available(client, time)) < rounds * seconds:
        away = availability.next_offline(client, time)
        assert time / seconds == round(time / seconds)
        found[round(time / seconds) : round(away / seconds)] = True
        time = away
    return found


@pytest.mark.parametrize("client", [0, 63, 64, 200])
@pytest.mark.parametrize("probability", [0.02, 0.5, 0.98])
def test_the_rounds_are_those_of_the_documented_numbers(client, probability):
    expected = uniform(7, Purpose.AVAILABILITY, client, visit=np.arange(500)) < probability
    np.testing.assert_array_equal(available_rounds(Bernoulli(probability, 4.0, 7), client, 500, 4.0), expected)


def test_rounds_beyond_32_bits_have_different_numbers():
    availability, first = Bernoulli(0.5, 0.25, 3), 2**32 - 100
    found = [availability.next_available(9, k * 0.25) == k * 0.25 for k in range(first, first + 200)]
    r = first + np.arange(200)
    expected = uniform(3, Purpose.AVAILABILITY, 9, visit=r % 2**32, draw=r // 2**32) < 0.5
    assert found == expected.tolist()


def test_results_do_not_depend_on_earlier_calls(monkeypatch):
    rng = np.random.default_rng(0)
    asked = [(int(rng.integers(300)), float(rng.uniform(0, 1e5))) for _ in range(100)]
    expected = [Bernoulli(0.3, 30.0, 2).next_available(*question) for question in asked]
    monkeypatch.setattr(bernoulli, "_MAX_CACHED_BLOCKS", 3)
    one = Bernoulli(0.3, 30.0, 2)
    assert [one.next_available(*question) for question in asked] == expected
    assert len(one._cache) <= 3


@pytest.mark.parametrize("probability", [0.01, 0.99])
def test_long_searches(monkeypatch, probability):
    monkeypatch.setattr(bernoulli, "_NEAR_BLOCKS", 1)
    monkeypatch.setattr(bernoulli, "_FAR_ROUNDS", 50)
    expected = uniform(7, Purpose.AVAILABILITY, 70, visit=np.arange(20_000)) < probability
    np.testing.assert_array_equal(available_rounds(Bernoulli(probability, 4.0, 7), 70, 20_000, 4.0), expected)


def test_probability_1_is_always():
    always = Bernoulli(1.0, 10.0, 0)
    assert (always.next_available(0, 1e12), always.next_offline(0, 5.0)) == (1e12, math.inf)


def test_rounds_end_after_3000_years():
    availability = Bernoulli(0.5, 10.0, 0)
    assert availability.next_available(0, 1e11) == math.inf
    assert [availability.next_available(client, 1e11 - 1) for client in range(50)].count(math.inf) > 10
    few = Bernoulli(0.5, 3e10, 0)  # the fourth round would end at 1.2e11
    client = next(c for c in range(50) if few.next_available(c, 9.5e10) == 9.5e10)
    assert few.next_offline(client, 9.5e10) == 1e11


def test_a_search_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(bernoulli, "_MAX_ROUNDS_OFFLINE", 10_000)
    availability = Bernoulli(1e-300, 10.0, 0)
    with pytest.raises(OffbeatError, match="client 5 is available in none of 10,000 rounds: probability"):
        availability.next_available(5, 0.0)


def test_a_long_search_is_done_once(monkeypatch):
    searches = []
    search = Bernoulli._find_round
    monkeypatch.setattr(Bernoulli, "_find_round", lambda self, *asked: searches.append(asked) or search(self, *asked))
    monkeypatch.setattr(bernoulli, "_MAX_ROUNDS_AVAILABLE", 10_000)
    availability = Bernoulli(1 - 1e-11, 10.0, 0)
    assert [availability.next_offline(5, seconds) for seconds in (20.0, 500.0, 100_010.0)] == [100_020.0] * 3
    assert len(searches) == 1
    assert availability.next_available(5, 100_020.0) == 100_020.0
    assert availability.next_offline(5, 100_020.0) == 200_020.0
    assert availability.next_offline(6, 500.0) == 100_500.0


def test_rounds_that_are_too_short_are_refused():
    with pytest.raises(OffbeatError, match=r"round_seconds is 0.0"):
        Bernoulli(0.5, 0.0, 0)
