import math

from offbeat.population.availability import Always


def test_always():
    assert Always().next_available(7, 2.5) == 2.5
    assert Always().next_offline(7, 2.5) == math.inf
