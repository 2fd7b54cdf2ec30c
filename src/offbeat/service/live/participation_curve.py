"""Participation: how evenly the counted updates are spread over the clients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

_MOST_POINTS = 64


def participation(counts: Sequence[int]) -> dict[str, Any]:
    """Return the curve of counted updates by client, and the Gini coefficient.

    With counts c_1 ≤ … ≤ c_N the Gini coefficient is Σ (2i − N − 1) c_i / (N Σ c_i): 0 if all are equal, 1 − 1/N if one
    client has all; None without updates. The curve has the counts in descending order, at 64 clients at most: each pair
    is a client's place from 0, and its count. ``without`` is the number of clients without a counted update.
    """
    ascending = np.sort(np.asarray(counts, dtype=np.int64))
    number, total = len(ascending), int(ascending.sum())
    gini = None
    if total:
        ranks = np.arange(1, number + 1, dtype=np.float64)
        gini = float(((2 * ranks - number - 1) * ascending).sum() / (number * total))
    places = np.unique(np.linspace(0, number - 1, min(number, _MOST_POINTS)).round().astype(np.int64))
    curve = [[int(place), int(ascending[number - 1 - place])] for place in places]
    return {"curve": curve, "gini": gini, "without": int((ascending == 0).sum())}
