"""Finished runs with given numbers, and readers of their figures."""

import io
import math
from pathlib import Path

import numpy as np

from offbeat.runs.directory import EVENTS, Run

WORLD = {
    "data": {"name": "digits"},
    "model": {"name": "mlp"},
    "population": {"clients": 1200, "partition": {"name": "dirichlet", "alpha": 0.3}},
    "stop": {"virtual_seconds": 2400.0, "versions": 9},
}


def a_run(
    label="a", seed=0, values=(0.1, 0.5), visits=(), totals=None, *,
    seconds=None, evaluate=None, config=None, columns=None, **fields,
):  # fmt: skip
    """Return a run that was evaluated every 100 s.

    ``values`` are of the main measure; ``totals`` are last values of a column, ``columns`` whole ones. ``visits`` are
    (staleness, outcome) or (client, staleness, assigned, ended, outcome); ``fields`` are other fields of the run.
    """
    number = len(values)
    totals, evaluate = totals or {}, evaluate or {"metrics": ["accuracy"], "better": "higher", "target": 0.5}
    history = {"seconds": 100.0 * np.arange(number), "version": np.arange(number), "loss": np.ones(number)}
    if seconds is not None:
        history["seconds"] = np.array(seconds, float)
    for name in ("counted", "unused", "lost", "bytes_down", "bytes_up", "displacement"):
        history[name] = np.array([*range(number - 1), totals.get(name, number - 1)][:number])
    for name in evaluate["metrics"][1:]:
        history[name] = np.full(number, 0.25)
    history[[*evaluate["metrics"], "loss"][0]] = np.array(values, float)
    history |= {name: np.array(column) for name, column in (columns or {}).items()}
    rows = [row if len(row) > 2 else (place, row[0], 0.0, 10.0 + place, row[1]) for place, row in enumerate(visits)]
    client, stale, assigned, ended, outcome = zip(*rows, strict=True) if rows else [()] * 5
    events = {name: np.zeros(len(rows), np.int64) for name in EVENTS.names} | {
        "client": np.array(client, np.int64),
        "staleness": np.array([math.nan if tau is None else tau for tau in stale], float),
        "assigned_seconds": np.array(assigned, float),
        "ended_seconds": np.array(ended, float),
        "outcome": np.array(outcome, object),
    }
    config = {**WORLD, "algorithms": {label: {}}, "evaluate": evaluate, **(config or {})}
    fields = {"path": Path("runs") / f"{label}-seed{seed}", "real_seconds": 2.0, **fields}
    return Run(label=label, seed=seed, config=config, history=history, events=events, **fields)


def client_run(label="a", seed=0, *, more=None, **changes):
    """Return a run that clients have evaluated at 0, 600 and 1200 s; ``changes`` are of its columns."""
    columns = {
        "clients_evaluated": [4.0, 4.0, 4.0],
        "client_accuracy": [0.9, 0.9, 0.9],
        "client_accuracy_mean": [0.2, 0.4, 0.6],
        "client_accuracy_p10": [0.1, 0.2, 0.3],
        "client_accuracy_p50": [0.2, 0.4, 0.6],
        "client_accuracy_p90": [0.5, 0.6, 0.7],
        "client_accuracy_worst": [0.05, 0.1, 0.15],
    }
    return a_run(label, seed, (0.1, 0.5, 0.6), seconds=(0, 600, 1200), columns=columns | changes, **(more or {}))


def draw(figure):
    """Draw a figure: ticks and layout are made here, so their errors show here."""
    figure.savefig(io.BytesIO(), format="svg")
    return figure
