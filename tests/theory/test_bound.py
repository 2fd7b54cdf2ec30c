import math

import pytest

from offbeat.theory.bound import (
    Bound,
    at_least,
    at_most,
    below,
    check_count,
    check_not_negative,
    check_positive,
    equal,
    given,
)


def test_a_bound_says_what_is_broken():
    good, bad = at_least("T", 5, "T_0", 5), at_most("γ", 0.5, "1/(18L)", 0.25)
    bound = Bound(1.0, (good, bad, given("all is well")))
    assert bound.broken == (bad,)
    assert not bound.holds
    assert Bound(1.0, (good,)).holds
    assert [assumption.given for assumption in bound.assumptions] == [False, False, True]


@pytest.mark.parametrize(
    ("assumption", "holds", "text"),
    [
        (at_least("T", 1000, "160 L", 1280), False, "T = 1000 is below 160 L = 1280"),
        (at_least("T", 1280, "160 L", 1280), True, "T = 1280 is at least 160 L = 1280"),
        (at_most("γ", 0.5, "1/L", 0.25), False, "γ = 0.5 is above 1/L = 0.25"),
        (at_most("γ", 0.25, "1/L", 0.25), True, "γ = 0.25 is at most 1/L = 0.25"),
        (below("γ", 0.25, "1/L", 0.25), False, "γ = 0.25 is not below 1/L = 0.25"),
        (below("γ", 0.125, "1/L", 0.25), True, "γ = 0.125 is below 1/L = 0.25"),
        (equal("C", 5, "1", 1), False, "C = 5 is not 1"),
        (equal("γ", 0.1 + 0.2, "0.3", 0.3), True, "γ = 0.3 is equal to 0.3"),
        (equal("γ", 0.3001, "0.3", 0.3), False, "γ = 0.3001 is not 0.3"),
    ],
)
def test_assumptions_read_as_they_stand(assumption, holds, text):
    assert (assumption.holds, assumption.text) == (holds, text)


@pytest.mark.parametrize("value", [0, -1, math.inf, math.nan])
def test_check_positive_names_the_value(value):
    with pytest.raises(ValueError, match=f"lr must be a finite number greater than 0, got {value}"):
        check_positive(rounds=1, lr=value)


@pytest.mark.parametrize("value", [-1, math.inf, math.nan])
def test_check_not_negative_names_the_value(value):
    check_not_negative(variance=0)
    with pytest.raises(ValueError, match=f"variance must be a finite number of at least 0, got {value}"):
        check_not_negative(variance=value)


@pytest.mark.parametrize("value", [0, -1, 1.5, math.inf, math.nan])
def test_check_count_names_the_value(value):
    check_count(clients=1)
    with pytest.raises(ValueError, match=f"clients must be a whole number of at least 1, got {value}"):
        check_count(clients=value)
