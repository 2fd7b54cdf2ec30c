"""Importance of settings: the share of the differences between trials.

The share that a setting explains on its own is the adjusted R² of a regression of the trials' ranks on it: on the
number and its square, or on the choice. Ranks, so that a trial that diverged is the worst one, and no more than that.
The square, because the best values often lie in the middle.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc
from scipy.stats import rankdata

from offbeat.sweeps.search_space import Choices, Space, Values
from offbeat.sweeps.trials import Trial

_LEVEL = 0.05  # of the F test
_FEWEST = 6  # trials


class Importance(NamedTuple):
    """The share that a setting explains, 0 … 1, and whether chance could do that."""

    share: float
    is_clear: bool


def importances(space: Space, trials: Sequence[Trial]) -> dict[str, Importance | None]:
    """Return the importance of each setting; None with too few trials to tell."""
    if len(trials) < _FEWEST:
        return dict.fromkeys(space)
    ranks = rankdata([trial.score for trial in trials])
    return {key: _importance(values, [trial.point[key] for trial in trials], ranks) for key, values in space.items()}


def _importance(values: Values, tried: Sequence[Any], ranks: NDArray[np.float64]) -> Importance | None:
    columns = _columns(values, tried)
    columns = columns - columns.mean(axis=0)
    parameters = int(np.linalg.matrix_rank(columns, tol=1e-9)) if columns.size else 0
    left = len(ranks) - parameters - 1
    differences = ranks - ranks.mean()
    total = float(differences @ differences)
    if parameters == 0 or left < 2 or total == 0:
        return None
    rest = differences - columns @ np.linalg.lstsq(columns, differences, rcond=None)[0]
    explained = 1 - float(rest @ rest) / total
    share = max(0.0, 1 - (1 - explained) * (len(ranks) - 1) / left)
    f = math.inf if explained >= 1 else explained / parameters / ((1 - explained) / left)
    return Importance(share, bool(fdtrc(parameters, left, f) < _LEVEL))


def _columns(values: Values, tried: Sequence[Any]) -> NDArray[np.float64]:
    """Return what ranks are regressed on, a column each."""
    if isinstance(values, Choices):
        return np.array([[one == choice for choice in values.values] for one in tried], float)
    numbers = np.array([place(values, one) for one in tried], float)
    return np.column_stack([numbers, numbers**2])


def place(values: Values, value: Any) -> float:
    """Return where a value lies: 0 for the first or lowest, 1 for the last or highest."""
    if isinstance(values, Choices):
        return values.values.index(value) / (len(values.values) - 1)
    low, high, number = (math.log(one) if values.log else one for one in (values.low, values.high, value))
    return (number - low) / (high - low)
