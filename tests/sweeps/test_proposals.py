import math

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.sweeps.over import Choices, Range
from offbeat.sweeps.proposals import check_optuna, next_points
from offbeat.sweeps.trials import Trial

LR = {"lr": Range(0.01, 10.0, log=True)}
FEW = {"n": Range(1, 3, log=False, whole=True), "kind": Choices(("a", {"name": "b"}))}


def search(space, trials, score, *, batch=1, seed=1):
    """Return the trials of a sweep whose score is a function of the point."""
    done = []
    while points := next_points(space, done, batch, trials, seed):
        done += [Trial("a", len(done) + n, point, 0.0, score(point)) for n, point in enumerate(points)]
    return done


def near_one(point):
    return -math.inf if point["lr"] > 5 else -(math.log10(point["lr"]) ** 2)


def points(trials):
    return [trial.point for trial in trials]


def test_a_small_space_is_tried_completely_and_in_order():
    done = search(FEW, 20, lambda _: 0.0, batch=4)
    assert points(done) == [{"n": n, "kind": kind} for n in (1, 2, 3) for kind in FEW["kind"].values]


def test_what_was_tried_before_is_not_tried_again():
    done = search(FEW, 4, lambda _: 0.0)
    more = list(done)
    while found := next_points(FEW, more, 1, 6, 1):
        more += [Trial("a", len(more), found[0], 0.0, 0.0)]
    assert len(more) == 6
    assert all(points(more).count(point) == 1 for point in points(more))
    assert more[:4] == done


def test_a_large_space_is_searched_where_scores_are_high():
    done = search(LR, 30, near_one)
    assert len(done) == 30
    assert all(0.01 <= point["lr"] <= 10 for point in points(done))
    assert all(points(done).count(point) == 1 for point in points(done))
    # The first ten are random.
    later = [trial.score for trial in done[10:]]
    assert sorted(later)[len(later) // 2] > -0.3
    assert max(later) > -0.01


def test_drawn_numbers_have_four_digits_and_stay_inside():
    narrow = {"lr": Range(0.123456, 0.123461, log=False)}
    found = [point["lr"] for point in points(search(narrow, 5, lambda _: 0.0))]
    assert all(0.123456 <= lr <= 0.123461 for lr in found)
    assert len(set(found)) == 5  # which four digits do not distinguish
    assert all(float(f"{point['lr']:.4g}") == point["lr"] for point in points(search(LR, 5, near_one)))


def test_whole_numbers_and_choices():
    space = {**FEW, "m": Range(1, 1000, log=True, whole=True)}
    for point in points(search(space, 15, lambda point: point["m"])):
        assert type(point["n"]) is int
        assert type(point["m"]) is int
        assert point["kind"] in FEW["kind"].values


@pytest.mark.parametrize("batch", [1, 2])
def test_the_same_seed_and_scores_give_the_same_points(batch):
    once, again = (search(LR, 16, near_one, batch=batch) for _ in range(2))
    assert once == again
    assert points(once) != points(search(LR, 16, near_one, batch=batch, seed=2))
    assert next_points(LR, once[:12], batch, 16, 1) == points(once[12 : 12 + batch])


def test_a_batch_has_different_points_and_ends_with_the_last_trial():
    done = search(LR, 9, near_one, batch=4)
    assert len(done) == 9
    assert len({point["lr"] for point in points(done)}) == 9


def test_optuna_is_needed_for_large_spaces_only(monkeypatch):
    check_optuna({"a": LR}, 20)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    check_optuna({"a": FEW}, 6)
    with pytest.raises(
        OffbeatError, match=r"^more combinations than --trials need Optuna: pip install 'offbeat\[sweep\]'$"
    ):
        check_optuna({"a": FEW, "b": LR}, 6)
