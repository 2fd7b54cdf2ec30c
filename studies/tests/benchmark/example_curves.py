"""Curves and a world with given numbers."""

from pathlib import Path

import numpy as np

from offbeat_studies.benchmark.measures import Curve
from offbeat_studies.benchmark.world import World

WORLD = World(Path("tiny.toml"), "A world.", 40.0, 0.5, {}, (), {})


def a_curve(accuracy, seed=1, seconds=10.0, client_seconds=50.0, size=1000.0):
    """Return a curve; each evaluation is so many seconds, client seconds and bytes after the one before."""
    steps = np.arange(len(accuracy), dtype=float)
    costs = {"seconds": seconds * steps, "client_seconds": client_seconds * steps, "bytes": size * steps}
    return Curve(seed, costs, np.array(accuracy, dtype=float))
