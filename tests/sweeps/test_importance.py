import math
import random

import pytest

from offbeat.sweeps.importance import importances, place
from offbeat.sweeps.search_space import Choices, Numbers
from offbeat.sweeps.trials import Trial

SPACE = {
    "lr": Numbers(0.01, 1.0, log=True),
    "n": Numbers(1, 4, log=False, whole=True),
    "kind": Choices(("a", {"name": "b"}, "c")),
}


def trials(score, number=40, seed=1):
    numbers = random.Random(seed)
    points = [
        {"lr": 10 ** numbers.uniform(-2, 0), "n": numbers.randint(1, 4), "kind": numbers.choice(SPACE["kind"].values)}
        for _ in range(number)
    ]
    return [Trial("a", place, point, 0.0, score(point)) for place, point in enumerate(points)]


def test_a_best_value_in_the_middle_counts_as_much_as_one_at_an_end():
    def score(point):
        return -abs(math.log10(point["lr"]) + 1) + 0.1 * (point["kind"] == "c")

    found = importances(SPACE, trials(score))
    assert found["lr"].share > 0.85
    assert found["lr"].is_clear
    assert found["n"].share < 0.1
    assert not found["n"].is_clear


def test_choices_by_hand():
    # Ranks 1, 2 | 3, 4 | 5, 6: of the sum of squares 17.5 remain 3 · 0.5, so 1 - 1.5 / 17.5 · 5 / 3 = 6 / 7.
    own = [Trial("a", n, {"kind": SPACE["kind"].values[n // 2]}, 0.0, n) for n in range(6)]
    found = importances({"kind": SPACE["kind"]}, own)["kind"]
    assert found.share == pytest.approx(6 / 7)
    assert found.is_clear


def test_one_that_diverged_is_no_more_than_the_worst():
    own = [Trial("a", n, {"n": 1 + n % 4}, 0.0, -math.inf if n % 4 == 0 else n % 4) for n in range(12)]
    same = [Trial("a", n, {"n": 1 + n % 4}, 0.0, n % 4) for n in range(12)]
    assert importances({"n": SPACE["n"]}, own) == importances({"n": SPACE["n"]}, same)


def test_chance_is_called_clear_as_often_as_the_level_says():
    noise = random.Random(3)
    found = [importances(SPACE, trials(lambda _: noise.random(), 20, seed)) for seed in range(100)]
    assert 2 <= sum(one["lr"].is_clear for one in found) <= 10


@pytest.mark.parametrize("number", [0, 1, 5])
def test_of_few_trials_it_says_nothing(number):
    assert set(importances(SPACE, trials(lambda point: point["lr"], number)).values()) == {None}


def test_equal_scores_or_values_say_nothing():
    assert set(importances(SPACE, trials(lambda _: 1.0)).values()) == {None}
    same = [Trial("a", n, {"lr": 0.1, "n": 2, "kind": "a"}, 0.0, n) for n in range(9)]
    assert set(importances(SPACE, same).values()) == {None}


def test_places():
    assert place(SPACE["lr"], 0.1) == pytest.approx(0.5)
    assert place(SPACE["n"], 4) == 1
    assert place(SPACE["kind"], {"name": "b"}) == 0.5
