"""Points that are spread evenly over a search space."""

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from offbeat.sweeps.search_space import Choices, Space, Values, all_points, size_of
from offbeat.sweeps.trials import Point

_DIGITS = 4  # significant ones of a number, so that settings can be read and pasted


def spread_points(space: Space, number: int, seed: int) -> Sequence[Point]:
    """Return ``number`` points; all points if the space has no more.

    They are a Latin hypercube: a range is cut into ``number`` parts, of which each has one point, and each choice comes
    as often as the others, give or take once. A key's values, in order, do not depend on the other keys: search spaces
    that share a key try the same values of it. Points that come out equal are one.
    """
    if size_of(space) <= number:
        return all_points(space)
    columns = {key: _values(values, _places(key, number, seed)) for key, values in space.items()}
    points: list[Point] = [{key: column[n] for key, column in columns.items()} for n in range(number)]
    return [point for n, point in enumerate(points) if point not in points[:n]]


def _places(key: str, number: int, seed: int) -> NDArray[np.float64]:
    """Return a place in each of ``number`` parts of 0 to 1, in random order."""
    draw = np.random.default_rng([seed, zlib.crc32(key.encode())])
    return (draw.permutation(number) + draw.random(number)) / number


def _values(values: Values, places: NDArray[np.float64]) -> list[Any]:
    if isinstance(values, Choices):
        return [values.values[int(place * len(values.values))] for place in places]
    end = values.high + values.whole  # a whole number is the floor of one in [low, high + 1)
    numbers = values.low * (end / values.low) ** places if values.log else values.low + (end - values.low) * places
    if values.whole:
        return [min(math.floor(number), int(values.high)) for number in numbers]
    return [min(max(float(f"{number:.{_DIGITS}g}"), values.low), values.high) for number in numbers]
