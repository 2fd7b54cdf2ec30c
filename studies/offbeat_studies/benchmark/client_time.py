"""Client time: the seconds that all clients together have worked."""

import numpy as np
from numpy.typing import NDArray

from offbeat.runs.directory import Run


def client_seconds(run: Run) -> NDArray[np.float64]:
    """Return the client time up to each evaluation of a run.

    A visit counts from its assignment to its end, also if its update is unused or lost. The visits that are still
    open at the end of the run are not among its events. How many of them had begun at each evaluation follows from the
    bytes sent to clients, since all downloads have the same size; between two evaluations it is linear.
    """
    seconds = run.history["seconds"].astype(np.float64)
    assigned, ended = (run.events[name].astype(np.float64) for name in ("assigned_seconds", "ended_seconds"))
    finished = np.array([np.clip(np.minimum(ended, now) - assigned, 0.0, None).sum() for now in seconds])
    size = int(run.events["bytes_down"][0]) if len(assigned) else 0
    if not size:
        return finished
    begun = run.history["bytes_down"] / size
    still_open = begun - np.array([np.count_nonzero(assigned <= now) for now in seconds])
    return finished + _integral(seconds, np.clip(still_open, 0.0, None))


def _integral(xs: NDArray[np.float64], ys: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the integral of a piecewise linear function up to each of its points."""
    areas = np.diff(xs) * (ys[1:] + ys[:-1]) / 2
    return np.concatenate([[0.0], np.cumsum(areas)])
