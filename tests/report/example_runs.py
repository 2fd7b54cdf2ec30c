"""Runs with given numbers."""

import math
from pathlib import Path

import numpy as np

from offbeat.runs.directory import Run

WORLD = {
    "data": {"name": "digits"},
    "model": {"name": "mlp"},
    "population": {"clients": 1200, "partition": {"name": "dirichlet", "alpha": 0.3}},
    "stop": {"virtual_seconds": 2400.0, "versions": 9},
}


def a_run(label, seed=0, values=(0.1, 0.5), visits=(), totals=None, *, evaluate=None, config=None, **fields):
    """Evaluated each 100 s; ``visits`` are (staleness, outcome); ``values`` are of the main measure."""
    number = len(values)
    totals, evaluate = totals or {}, evaluate or {"metrics": ["accuracy"], "better": "higher", "target": 0.5}
    history = {"seconds": 100.0 * np.arange(number), "version": np.arange(number), "loss": np.ones(number)}
    for name in ("counted", "unused", "lost", "bytes_down", "bytes_up"):
        history[name] = np.array([*range(number - 1), totals.get(name, number - 1)][:number])
    for name in evaluate["metrics"][1:]:
        history[name] = np.full(number, 0.25)
    history[[*evaluate["metrics"], "loss"][0]] = np.array(values, float)
    events = {
        "staleness": np.array([math.nan if stale is None else stale for stale, _ in visits], float),
        "outcome": np.array([outcome for _, outcome in visits], object),
    }
    config = {**WORLD, "algorithms": {label: {}}, "evaluate": evaluate, **(config or {})}
    fields = {"real_seconds": 2.0, **fields}
    return Run(Path("runs") / f"{label}-seed{seed}", label, seed, config, history, events, **fields)
