import math
import os

import pytest
from offbeat_core.errors import OffbeatError

from offbeat.sweeps.search import Search, open_storage, remove_sweep
from offbeat.sweeps.search_space import Choices, Numbers

LR = {"lr": Numbers(0.01, 10.0, log=True)}
FEW = {"n": Numbers(1, 3, log=False, whole=True), "kind": Choices(("a", {"name": "b"}))}
GRID = [{"n": n, "kind": kind} for n in (1, 2, 3) for kind in ("a", {"name": "b"})]


@pytest.fixture
def search(tmp_path, overs):
    """Return a function that opens a search of a folder."""

    def open_search(space=LR, trials=16, *, folder="out", label="a", seed=1, over=("local.lr=1:2",), first=None):
        path = tmp_path / folder
        path.mkdir(exist_ok=True)
        return Search(open_storage(path), path, label, space, overs(*over), trials=trials, seed=seed, first=first)

    return open_search


def carry_out(search, score, *, batch=1, upto=math.inf):
    """Try points until there are none, or ``upto``; return them."""
    done = []
    while len(done) < upto and (points := search.batch(len(done), batch)):
        for number, point in enumerate(points, len(done)):
            search.tell(number, score(point))
        done += points
    return done


def near_one(point):
    return -math.inf if point["lr"] > 5 else -(math.log10(point["lr"]) ** 2)


def test_a_small_space_is_tried_completely_and_in_order(search):
    assert carry_out(search(FEW, 20), lambda _: 0.0, batch=4) == GRID


@pytest.mark.parametrize("seed", range(5))
def test_values_of_a_small_set_are_taken_in_turn(seed, search):
    space = {**LR, "size": Choices((2, 5, 10)), "n": Numbers(1, 4, log=True, whole=True)}
    done = carry_out(search(space, 20, seed=seed), near_one, batch=2, upto=10)
    for key, values in (("size", {2, 5, 10}), ("n", {1, 2, 3, 4})):
        tried = [point[key] for point in done]
        for first in range(0, len(tried) - len(values) + 1, len(values)):
            assert set(tried[first : first + len(values)]) == values
    assert len({point["lr"] for point in done}) == 10


def test_what_was_tried_before_is_not_tried_again(search):
    done = carry_out(search(FEW, 4), lambda _: 0.0)
    more = carry_out(search(FEW, 6), lambda _: 0.0)
    assert more[:4] == done
    assert sorted(map(str, more)) == sorted(map(str, GRID))


def test_a_large_space_is_searched_where_scores_are_high(search):
    done = carry_out(search(LR, 30), near_one)
    assert len({point["lr"] for point in done}) == len(done) == 30
    assert all(0.01 <= point["lr"] <= 10 for point in done)
    # The first ten are random.
    later = sorted(map(near_one, done[10:]))
    assert later[len(later) // 2] > -0.3
    assert later[-1] > -0.01


def test_drawn_numbers_have_four_digits_and_stay_inside(search):
    narrow = {"lr": Numbers(0.123456, 0.123461, log=False)}
    found = [point["lr"] for point in carry_out(search(narrow, 5, folder="narrow"), lambda _: 0.0)]
    assert all(0.123456 <= lr <= 0.123461 for lr in found)
    assert len(set(found)) == 5  # which four digits do not distinguish
    assert all(float(f"{point['lr']:.4g}") == point["lr"] for point in carry_out(search(LR, 5), near_one))


def test_the_first_point_may_be_given_to_the_digit(search):
    given = {"lr": 0.123456789}
    points = carry_out(search(first=given), near_one)
    assert points[0] == given
    assert search(first=given).points == points
    assert carry_out(search(FEW, 6, label="b", first=GRID[4]), lambda _: 1.0) == [GRID[4], *GRID[:4], GRID[5]]


def test_whole_numbers_and_choices(search):
    space = {**FEW, "m": Numbers(1, 1000, log=True, whole=True)}
    for point in carry_out(search(space, 15), lambda point: point["m"]):
        assert type(point["n"]) is int
        assert type(point["m"]) is int
        assert point["kind"] in FEW["kind"].values


@pytest.mark.parametrize("batch", [1, 2])
def test_the_same_seed_and_scores_give_the_same_points(batch, search):
    once, again = (carry_out(search(folder=folder), near_one, batch=batch) for folder in ("one", "two"))
    assert once == again
    assert once != carry_out(search(folder="other", seed=2), near_one, batch=batch)
    assert once == carry_out(search(folder="one"), near_one, batch=batch)


@pytest.mark.parametrize(("space", "trials"), [(LR, 16), (FEW, 6)])
def test_a_search_that_is_killed_at_any_write_comes_to_the_same_points(space, trials, search, tmp_path):
    score = near_one if space is LR else lambda point: point["n"]
    whole = carry_out(search(space, trials), score, batch=4)
    journal = tmp_path / "out" / "optuna.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    for kept in range(0, len(lines), 3):
        journal.write_bytes(b"".join(lines[:kept]) + lines[kept][:7])
        (journal.parent / "optuna.journal.lock").touch()
        assert carry_out(search(space, trials), score, batch=4) == whole


def test_a_batch_has_different_points_and_ends_with_the_last_trial(search):
    done = carry_out(search(LR, 9), near_one, batch=4)
    assert len({point["lr"] for point in done}) == len(done) == 9


def test_another_sweep_is_refused(search):
    over = ("local.lr=1:2", "local.steps=1,2")
    search(over=over)
    assert search(over=over[::-1]).points == []
    with pytest.raises(OffbeatError, match=r"holds a sweep over local.lr=1:2, local.steps=1,2: choose .* --fresh$"):
        search()


@pytest.mark.parametrize("content", [b"{\n{}\n", b"[]\n", b"3\n", b'{"op_code": 0}\n'])
def test_a_broken_storage_is_one_line(content, tmp_path):
    (tmp_path / "optuna.journal").write_bytes(content)
    with pytest.raises(OffbeatError, match=r"optuna.journal is broken: choose another folder"):
        open_storage(tmp_path)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_one_line(search, tmp_path):
    found = search()
    (tmp_path / "out").chmod(0o500)
    with pytest.raises(OffbeatError, match=r"cannot write .*optuna.journal: Permission denied; choose another folder"):
        found.batch(0, 1)


def test_a_narrow_range_has_as_many_points_as_trials(search, monkeypatch):
    monkeypatch.setattr("offbeat.sweeps.search._DIGITS", 1)  # 1 and 2, then all digits
    narrow = {"lr": Numbers(1.0, 2.0, log=False)}
    points = carry_out(search(narrow, 5), near_one)
    assert len({point["lr"] for point in points}) == 5
    assert search(narrow, 5).points == points


@pytest.mark.parametrize("content", [b"", b"broken\nbroken\n"])
def test_a_sweep_is_removed_with_its_runs_only(content, tmp_path):
    for name in ("a 0-seed1", "a 12-seed3.unfinished", "b 0-seed1", "a-seed1", "a x-seed1", "a 2 0-seed1"):
        (tmp_path / name).mkdir()
    (tmp_path / "optuna.journal").write_bytes(content)
    remove_sweep(tmp_path, ["a"])
    assert {path.name for path in tmp_path.iterdir()} == {"b 0-seed1", "a-seed1", "a x-seed1", "a 2 0-seed1"}


def test_the_points_of_other_labels_stay_where_a_sweep_is_removed(search, tmp_path):
    points = {label: carry_out(search(label=label), near_one, upto=2) for label in ("a", "b")}
    remove_sweep(tmp_path / "out", ["a"])
    assert search(label="b").points == points["b"]
    assert search(label="a", over=("local.lr=1:3",)).points == []
