import math

import pytest

from offbeat.sweeps.search_space import Choices, Numbers
from offbeat_studies.benchmark.spread_points import spread_points

LR = Numbers(0.02, 0.5, log=True)
SPACE = {"local.lr": LR, "alpha": Numbers(-1.0, 1.0, log=False), "window": Numbers(2, 31, log=False, whole=True),
         "clients": Choices((10, 20, 50))}  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1])
def test_each_part_of_a_range_has_one_point_and_each_choice_equally_many(seed):
    points = spread_points(SPACE, 30, seed)
    assert len(points) == 30
    rates = sorted(math.log(point["local.lr"] / 0.02) / math.log(25) * 30 for point in points)
    alphas = sorted((point["alpha"] + 1) / 2 * 30 for point in points)
    for part in range(30):
        assert part - 0.01 <= rates[part] <= part + 1.01  # four digits
        assert part - 0.01 <= alphas[part] <= part + 1.01
    assert sorted(point["window"] for point in points) == list(range(2, 32))
    assert all(isinstance(point["window"], int) for point in points)
    assert sorted(point["clients"] for point in points) == [10] * 10 + [20] * 10 + [50] * 10


def test_whole_numbers_are_spread_by_their_logarithm_where_that_is_asked_for():
    points = spread_points({"window": Numbers(1, 1023, log=True, whole=True)}, 10, 0)
    found = sorted(point["window"] for point in points)
    for part, window in enumerate(found):  # each part of the logarithms doubles
        assert 2**part <= window < 2 ** (part + 1)


def test_choices_are_not_tied_to_other_keys():
    points = spread_points(SPACE, 30, 0)
    for clients in (10, 20, 50):
        rates = [point["local.lr"] for point in points if point["clients"] == clients]
        assert min(rates) < 0.06 < 0.17 < max(rates)  # a third of the range is 0.02 to 0.058, or 0.17 to 0.5


def test_spaces_that_share_a_key_try_the_same_values_of_it():
    alone = [point["local.lr"] for point in spread_points({"server_lr": LR, "local.lr": LR}, 10, 0)]
    assert alone == [point["local.lr"] for point in spread_points({"local.lr": LR}, 10, 0)]
    assert alone != [point["server_lr"] for point in spread_points({"server_lr": LR, "local.lr": LR}, 10, 0)]
    assert alone != [point["local.lr"] for point in spread_points({"local.lr": LR}, 10, 1)]


def test_a_small_space_is_tried_whole_and_no_point_twice():
    assert len(spread_points({"a": Choices((1, 2)), "b": Choices((3, 4))}, 4, 0)) == 4
    points = spread_points({"a": Choices((1, 2)), "b": Choices(tuple(range(3)))}, 5, 0)
    assert 1 < len(points) <= 5
    assert all(point not in points[:n] for n, point in enumerate(points))
